"""Which options go together, one table for all backends, and the names a consumer goes by."""

from __future__ import annotations

import logging
import os
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.clock import SYSTEM
from ottla.streams.base import Operation
from ottla.streams.errors import (
    ConfigError,
    GroupIsSet,
    GroupNotSet,
    StreamKeyEmpty,
    Unsupported,
)
from ottla.streams.types import WILDCARD, AutoCommit, Mode, Reset
from ottla.streams.url import validate_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.streams.types import Backend, ConsumerOptions

_log = logging.getLogger("ottla.streams")

_IN_CONTAINER = Path("/.dockerenv")

_MODES = {
    Mode.RESUMABLE: Operation.RESUMABLE,
    Mode.LOAD_BALANCED: Operation.LOAD_BALANCED,
    Mode.SHARED: Operation.SHARED,
}


def refuse(backend: Backend, unsupported: Mapping[Operation, str], operation: Operation) -> None:
    """Raise `Unsupported` with the backend's own reason, if it has one."""
    reason = unsupported.get(operation)
    if reason is not None:
        raise Unsupported(f"the {backend.value} backend cannot do {operation.value}: {reason}")


def validate(
    backend: Backend,
    unsupported: Mapping[Operation, str],
    streams: Sequence[str],
    options: ConsumerOptions,
) -> None:
    """Validate options, the same for every store."""
    if not streams:
        raise StreamKeyEmpty(
            "name at least one stream after the last slash of the URL", fix="or in consumer(...)"
        )
    for stream in streams:
        validate_key(stream, wildcard=True)
    mode = options.mode
    if options.group == "":
        raise GroupNotSet("group is empty; give it a name, or leave it out")
    if mode is Mode.REAL_TIME and options.group is not None:
        raise GroupIsSet("a real-time consumer takes no group; use mode=LOAD_BALANCED or RESUMABLE")
    if mode in (Mode.LOAD_BALANCED, Mode.SHARED) and options.group is None:
        raise GroupNotSet(f"mode={mode.name} needs group=...")
    if mode in _MODES:
        refuse(backend, unsupported, _MODES[mode])
    if options.reset is Reset.EARLIEST:
        refuse(backend, unsupported, Operation.EARLIEST)
    if options.offsets is not None:
        refuse(backend, unsupported, Operation.OFFSETS)
        if mode in (Mode.REAL_TIME, Mode.SHARED):
            raise ConfigError(f"offsets= has no meaning with mode={mode.name}; use RESUMABLE")
    _validate_dead_letters(options)


def _validate_dead_letters(options: ConsumerOptions) -> None:
    if (options.max_deliveries is None) != (options.dead_letter is None):
        raise ConfigError("max_deliveries and dead_letter go together; set both or neither")
    if options.dead_letter is not None:
        validate_key(options.dead_letter)
        if options.auto_commit not in (AutoCommit.ROLLING, AutoCommit.DISABLED):
            raise ConfigError("dead letters need nack(): set auto_commit=ROLLING or DISABLED")


def has_wildcard(streams: Sequence[str]) -> bool:
    """Whether all streams are asked for."""
    return WILDCARD in streams


def consumer_name(options: ConsumerOptions) -> str:
    """The group given, or `{host}:{app}:r`: per program, so that two of a host do not share it."""
    if options.group is not None:
        return options.group
    if _IN_CONTAINER.exists() and not os.environ.get("HOST_ID"):
        _log.warning(
            "this resumable consumer is named after its container, so a new container does not "
            "find its position; set the environment variable HOST_ID, or give the consumer a group"
        )
    return f"{host_id()}:{options.app or _program()}:r"


def member_id() -> str:
    """A name no other consumer has: host, process, thread, time."""
    return f"{host_id()}:{os.getpid()}:{threading.get_ident()}:{SYSTEM.wall_ns()}"


def host_id() -> str:
    """`HOST_ID`, else the container's id, else the machine's, else the MAC address."""
    given = os.environ.get("HOST_ID")
    if given:
        return given
    if _IN_CONTAINER.exists():
        container = os.environ.get("HOSTNAME")
        if container:
            return container
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except OSError:
        machine = ""
    return machine or f"{uuid.getnode():012x}"


def _program() -> str:
    return Path(sys.argv[0]).stem or "python"
