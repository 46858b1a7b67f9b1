"""Where to find the first broker: "host:port,host:port", or a sequence of "host:port"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.connection import Address
from ottla.client.errors import BadArgument, WrongType

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT: Final = 9092


class BadBootstrap(BadArgument):
    """A bootstrap list that names no broker."""


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[Address]:
    """The addresses in their order, each once. The port may be left out; IPv6 goes in brackets."""
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else _entries(bootstrap)
    if any("@" in entry for entry in entries):
        # The part before the @ is secret and may contain commas and colons: do not quote any of it.
        raise BadBootstrap(
            "bootstrap has an @, and HOST:PORT has none: a user and a password go into security="
        )
    found = dict.fromkeys(_address(entry.strip()) for entry in entries if entry.strip())
    if not found:
        raise BadBootstrap(f"bootstrap {bootstrap!r} names no broker; give HOST:PORT")
    return list(found)


def _entries(given: object) -> list[str]:
    if isinstance(given, Mapping):
        # Settings of other clients may have a password among them: do not quote any of it.
        raise WrongType(
            'bootstrap: expected the address itself, such as "127.0.0.1:9092" (the value of '
            f'"bootstrap.servers"), got a {type(given).__name__}; settings are arguments by name, '
            "and security=Security.from_properties(...) takes Kafka's own"
        )
    found = list(given) if isinstance(given, Iterable) else [given]
    entries = [entry for entry in found if isinstance(entry, str)]
    if len(entries) < len(found):
        raise WrongType(f'bootstrap: expected "HOST:PORT,..." or a list of these, got {given!r}')
    return entries


def _address(entry: str) -> Address:
    host, separator, port = entry.rpartition(":")
    if not separator or entry.endswith("]"):
        host, port = entry, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadBootstrap(f"bootstrap {entry!r} is not HOST:PORT; write IPv6 as [HOST]:PORT")
    if not _may_be_host(host):
        raise BadBootstrap(f"bootstrap {entry!r:.80} is not HOST:PORT: invalid host name")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise BadBootstrap(f"bootstrap {entry!r} is not HOST:PORT with a port from 1 to 65535")
    return Address(host, int(port))


def _may_be_host(host: str) -> bool:
    """Whether the system can be asked for it: it would raise something that says nothing."""
    try:
        return b"\0" not in host.encode("idna")
    except UnicodeError:
        return False
