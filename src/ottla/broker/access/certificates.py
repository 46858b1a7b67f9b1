"""The certificates of a node's TLS listeners, and their replacement while it runs.

    files as they were loaded          -> nothing to do
    files changed, and all is well     -> new connections use the new ones, old ones go on as before
    files changed, and anything wrong  -> the old ones stay; one line in the log, one more failure

- A whole new context is built in a thread, with all checks of the start. The subject must be the
  same and no name may be missing, unless `ssl.allow.dn.changes` or `ssl.allow.san.changes` say
  that this is meant: clients and other nodes know the broker by them.
- Files that failed are tried again in every round, since a certificate and its key are replaced one
  after the other, and a certificate that is not valid yet will be. The same fault is logged once.
- A certificate in its last `WARNING_DAYS` is a warning, once a day.

`decision`, `refusal` and `warning` are pure; `Certificates` is the shell around them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.metadata.errors import InvalidConfig
from ottla.security.contexts import (
    KEYS,
    Certificate,
    ServerContext,
    TlsSettings,
    fingerprint,
    server_context,
)
from ottla.security.errors import BadSecuritySetting
from ottla.security.principal import MAPPING_KEY, MappingRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.broker.access.listeners import Listener
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.metadata.config.broker import BrokerConfig, ListenerConfig

WARNING_DAYS: Final = 14
DAY_SECONDS: Final = 86_400

Fingerprint = tuple[tuple[str, int, int, int] | None, ...]

logger = logging.getLogger(__name__)


# -- pure -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a listener uses now."""

    context: ServerContext
    files: Fingerprint


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of new files: a context, or why there is none."""

    files: Fingerprint
    result: ServerContext | str


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which changes of a certificate are meant."""

    subject: bool = False
    names: bool = False


def refusal(old: Certificate, new: Certificate, allowed: Allowed) -> str | None:
    """Why a certificate may not take the place of another."""
    if not allowed.subject and new.subject != old.subject:
        return (
            f"its subject is {_text(new.subject)} instead of {_text(old.subject)}; "
            "ssl.allow.dn.changes=true permits that"
        )
    missing = old.names - new.names
    if not allowed.names and missing:
        shown = ", ".join(sorted(name for _, name in missing))
        return f"it lacks the names {shown}; ssl.allow.san.changes=true permits that"
    return None


def decision(now: Loaded, attempt: Attempt, allowed: Allowed) -> Loaded | str:
    """What the listener uses from now on, or why it stays with what it has."""
    result = attempt.result
    if isinstance(result, str):
        return result
    refused = refusal(now.context.certificate, result.certificate, allowed)
    return Loaded(result, attempt.files) if refused is None else refused


def warning(certificate: Certificate, now: float) -> str | None:
    """What to tell of a certificate that ends soon; `now` is in seconds since 1970."""
    left = certificate.not_after - now
    if left > WARNING_DAYS * DAY_SECONDS:
        return None
    if left < 0:
        return "has expired: clients refuse it"
    return f"expires in {int(left // DAY_SECONDS)} days"


def _text(subject: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{kind}={value}" for kind, value in subject) or "empty"


# -- the shell ------------------------------------------------------------------------------------


class _Listener:
    """One listener's settings, and what it uses."""

    def __init__(self, config: ListenerConfig, clock: Clock) -> None:
        self.settings = tls_settings(config)
        self.allowed = Allowed(
            config.get_bool("ssl.allow.dn.changes"), config.get_bool("ssl.allow.san.changes")
        )
        self._clock = clock
        self._where = config.where
        first = self.attempt()
        if isinstance(first.result, str):
            key, _, problem = first.result.partition(": ")
            file = config.broker.static.get(key, "") if key.endswith(".location") else ""
            if file not in problem:
                problem = f"{file}: {problem}"
            raise InvalidConfig("one that TLS can use", f"one that it cannot: {problem}", key)
        self.loaded = Loaded(first.result, first.files)
        self.fault: tuple[Fingerprint, str] | None = None  # the last one that was logged
        self.warned = float("-inf")
        try:
            self.rules = MappingRules.parse(config.get_str(MAPPING_KEY))
        except BadSecuritySetting as error:
            raise InvalidConfig(
                "DEFAULT or RULE:pattern/replacement/[LU], with commas between them",
                error.problem,
                config.where(MAPPING_KEY),
            ) from error

    def attempt(self) -> Attempt:
        """Build a context from the files as they are; in a thread."""
        # Before they are read: what changes meanwhile is a change for the next round.
        files = fingerprint(self.settings.paths)
        try:
            return Attempt(files, server_context(self.settings, now=self._clock.wall_ms() / 1000))
        except BadSecuritySetting as error:
            return Attempt(files, f"{self._where(error.key)}: {error.problem}")

    def attempt_if_changed(self) -> Attempt | None:
        if fingerprint(self.settings.paths) == self.loaded.files:
            return None
        return self.attempt()


class Certificates:
    """The contexts of all TLS listeners of a node; made at start, which raises `InvalidConfig`."""

    def __init__(
        self, config: BrokerConfig, listeners: Iterable[Listener], workers: Workers, clock: Clock
    ) -> None:
        self.failures = 0  # replacements that were refused
        self._clock = clock
        self._workers = workers
        self._lock = asyncio.Lock()  # SIGHUP may come while a round runs
        self._listeners = {
            one.name: _Listener(config.listener(one.name), clock)
            for one in listeners
            if one.has_tls
        }
        self._warn()

    def context(self, listener: str) -> ServerContext:
        """What new connections of a listener use."""
        return self._listeners[listener].loaded.context

    def rules(self, listener: str) -> MappingRules:
        """How a listener makes a user of the subject of a certificate."""
        return self._listeners[listener].rules

    def asks(self, listener: str) -> bool:
        """Whether a listener asks its clients for certificates."""
        return self.context(listener).verify_mode is not ssl.CERT_NONE

    def own_user(self, listener: str) -> str | None:
        """The user that a listener's own certificate maps to. Imports what reads it."""
        from ottla.security.principal import subject_of

        return self.rules(listener).apply(subject_of(self.context(listener).certificate.der))

    def seconds_left(self) -> Mapping[str, float]:
        """Until each listener's certificate expires; negative after that."""
        now = self._clock.wall_ms() / 1000
        return {
            name: one.loaded.context.certificate.not_after - now
            for name, one in self._listeners.items()
        }

    async def reload(self) -> None:
        """Look at the files of all listeners; take new ones."""
        async with self._lock:
            for name, listener in self._listeners.items():
                attempt = await self._workers.run(listener.attempt_if_changed)
                if attempt is None:
                    listener.fault = None
                    continue
                decided = decision(listener.loaded, attempt, listener.allowed)
                if isinstance(decided, Loaded):
                    listener.loaded, listener.fault = decided, None
                    logger.info("listener %s: new certificate taken", name)
                    continue
                self.failures += 1
                if listener.fault != (attempt.files, decided):
                    listener.fault = attempt.files, decided
                    logger.error("listener %s keeps its certificate: %s", name, decided)
            self._warn()

    def _warn(self) -> None:
        now = self._clock.wall_ms() / 1000
        for name, listener in self._listeners.items():
            said = warning(listener.loaded.context.certificate, now)
            if said is not None and now - listener.warned >= DAY_SECONDS:
                listener.warned = now
                logger.warning("listener %s: the certificate %s", name, said)


def tls_settings(config: ListenerConfig) -> TlsSettings:
    """The `ssl.*` settings that hold for a listener."""
    return TlsSettings.of(partial(_value, config))


def _value(config: ListenerConfig, key: str) -> str | None:
    if key in (KEYS["certificate_location"], KEYS["key_location"]):
        return None  # names of clients
    value = config.parsed(key)
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)
