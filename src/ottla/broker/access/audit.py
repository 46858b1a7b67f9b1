"""The audit log: who did what, from where, and what came of it. One JSON object a line.

- Lines are ASCII, and no value is longer than `MAX_VALUE`: a client's own words can neither forge a
  line nor fill the disk. Values of settings, passwords and tokens are never part of a line.
- A refusal that repeats (the same user, operation and resource) is told at once the first time; the
  others are told as a count, once a minute. So are failed logins, by address and the user that was
  tried, and connections that were turned away, by address.
- One thread writes. Its queue holds `MAX_WAITING` lines; further ones are dropped and counted, and
  nobody waits for the audit disk.
- Without `ottla.audit.file` lines go where the broker's log goes, by the logger `ottla.audit`.

`Repeats` and `line` are pure; `Audit` is the shell.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.metadata.errors import InvalidConfig
from ottla.wire.schema import API_NAMES

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

    from ottla.broker.serving.context import Peer, RequestContext
    from ottla.clock import Clock
    from ottla.metadata.security.acls import Operation, Resource

FILE_KEY: Final = "ottla.audit.file"
MAX_VALUE: Final = 256
"""Characters of one value; names of topics and users have at most 255."""
MAX_WAITING: Final = 10_000
"""Lines that wait for the disk, 4 MiB of them."""
MAX_REPEATS: Final = 10_000
"""Different refusals in a minute that are told apart."""
REPEAT_SECONDS: Final = 60.0
ALLOWED: Final = ("none", "admin", "all")
"""Which requests that were allowed have lines: none, those that change the cluster, or all."""

logger = logging.getLogger("ottla.audit")


class Line(NamedTuple):
    """What is known about an event; a field that is empty is left out."""

    event: str
    outcome: str
    principal: str = ""
    user: str = ""
    """Who a client said it was that failed to log in."""
    host: str = ""
    listener: str = ""
    tls: str = ""
    client_id: str = ""
    software: str = ""
    api: str = ""
    operation: str = ""
    resource: str = ""
    reason: str = ""
    repeats: int | None = None


def text_of(line: Line, wall_ms: int, node: int) -> str:
    """The line as it is written, without its end."""
    time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    found: dict[str, Any] = {"time": time}
    for name, value in zip(Line._fields, line, strict=True):
        if isinstance(value, str) and value:
            found[name] = value[:MAX_VALUE]
        elif isinstance(value, int):
            found[name] = value
    return json.dumps(found | {"node": node})


class Repeats:
    """Tells equal events apart from new ones; time is an argument."""

    def __init__(self, seconds: float = REPEAT_SECONDS, most: int = MAX_REPEATS) -> None:
        self._seconds = seconds
        self._most = most
        self._since: float | None = None
        self._seen: dict[Hashable, tuple[Line, int]] = {}
        self._further = 0

    def is_first(self, key: Hashable, line: Line, now: float) -> bool:
        """Whether to tell it now; else it is counted."""
        if self._since is None:
            self._since = now
        known = self._seen.get(key)
        if known is not None:
            self._seen[key] = known[0], known[1] + 1
            return False
        if len(self._seen) >= self._most:
            self._further += 1
            return False
        self._seen[key] = line, 0
        return True

    def due(self, now: float) -> list[Line]:
        """The counts of a minute that is over; they begin anew."""
        if self._since is None or now - self._since < self._seconds:
            return []
        lines = [line._replace(repeats=count) for line, count in self._seen.values() if count]
        if self._further:
            event = next(iter(self._seen.values()))[0].event
            reason = "further ones that were not told apart"
            lines.append(Line(event, "counted", reason=reason, repeats=self._further))
        self._since = None
        self._seen.clear()
        self._further = 0
        return lines


class Audit:
    """Takes events on the event loop; a thread of its own writes them."""

    def __init__(
        self, clock: Clock, node_id: int, *, file: Path | None = None, allowed: str = "admin"
    ) -> None:
        self._clock = clock
        self._node_id = node_id
        self._file = file
        self.tells_changes = allowed != "none"
        self.tells_all = allowed == "all"
        self.dropped = 0
        self._denials = Repeats()
        self._turned_away = Repeats()
        self._waiting: deque[tuple[Line, int]] = deque()
        self._news = threading.Condition()
        self._ends = False
        self._reopens = False
        self._thread: threading.Thread | None = None
        # The broker's own log may show warnings alone.
        logger.setLevel(logging.INFO)

    # -- events -----------------------------------------------------------------------------------

    def authenticated(self, peer: Peer, outcome: str) -> None:
        """A client logged in, or outlived its login."""
        self._tell(_of(peer, Line("authenticate", outcome)))

    def not_authenticated(self, peer: Peer, reason: str, user: str = "") -> None:
        """A client failed to log in; one that does so all the time is counted."""
        user = user[:MAX_VALUE]
        line = Line("authenticate", "failed", reason=reason, user=user)
        line = _of(peer, line)._replace(principal="")
        key = peer.host, peer.listener, reason, user
        if self._turned_away.is_first(key, line, self._clock.monotonic()):
            self._tell(line)

    def changed(
        self, peer: Peer, client_id: str | None, api: str, resource: str, outcome: str
    ) -> None:
        """A client changed the cluster, or tried to."""
        if self.tells_changes:
            line = Line("admin", outcome, api=api, resource=resource, client_id=client_id or "")
            self._tell(_of(peer, line))

    def denied(
        self, context: RequestContext, operation: Operation, resource: Resource, name: str
    ) -> None:
        """A client asked for what it may not."""
        api = API_NAMES[context.api_key]
        self.denied_api(context.peer, api, operation, resource, name, context.client_id or "")

    def denied_api(
        self,
        peer: Peer,
        api: str,
        operation: Operation,
        resource: Resource,
        name: str,
        client_id: str = "",
    ) -> None:
        """The same of an API that has a name, and no number."""
        line = Line(
            "deny",
            "denied",
            api=api,
            operation=_word(operation),
            resource=f"{_word(resource)}:{name}",
            client_id=client_id,
        )
        key = peer.principal, operation, resource, name
        told = _of(peer, line)
        if self._denials.is_first(key, told, self._clock.monotonic()):
            self._tell(told)

    def allowed(self, peer: Peer, client_id: str | None, api: str) -> None:
        """A client was served; told only where everything is."""
        if self.tells_all:
            self._tell(_of(peer, Line("allow", "allowed", api=api, client_id=client_id or "")))

    def turned_away(self, host: str, listener: str, reason: str) -> None:
        """A connection was refused, or ended because it took too much or too long."""
        line = Line("limit", "closed", host=host, listener=listener, reason=reason)
        if self._turned_away.is_first((host, reason), line, self._clock.monotonic()):
            self._tell(line)

    def tls_failed(self, host: str, listener: str, reason: str) -> None:
        """A handshake failed; an address that does so all the time is counted."""
        line = Line("tls", "failed", host=host, listener=listener, reason=reason)
        if self._turned_away.is_first((host, "tls", reason), line, self._clock.monotonic()):
            self._tell(line)

    def certificate(self, listener: str, outcome: str, reason: str = "") -> None:
        """The certificate of a listener was replaced, or could not be."""
        self._tell(Line("tls", outcome, listener=listener, reason=reason))

    # -- writing ----------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Tell the counts of the last minute; called every few seconds."""
        now = self._clock.monotonic()
        for line in (*self._denials.due(now), *self._turned_away.due(now)):
            self._tell(line)

    def reopen(self) -> None:
        """Go on in a new file: somebody has renamed the old one."""
        with self._news:
            self._reopens = True
            self._news.notify()

    def close(self) -> None:
        """Write what waits. Blocks."""
        with self._news:
            self._ends = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join()

    def _tell(self, line: Line) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="ottla-audit", daemon=True)
            self._thread.start()
        with self._news:
            self._waiting.append((line, self._clock.wall_ms()))
            self._news.notify()

    def _write(self) -> None:
        """The thread: takes lines as they come."""
        output = _File(self._file) if self._file is not None else None
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._ends or self._reopens)
                reopens, self._reopens = self._reopens, False
                if not self._waiting and self._ends:
                    break
            if reopens and output is not None:
                output.reopen()
            while self._waiting:
                line, wall_ms = self._waiting.popleft()
                text = text_of(line, wall_ms, self._node_id)
                if output is None:
                    logger.info("%s", text)
                elif not output.write(text):
                    self.dropped += 1
        if output is not None:
            output.reopen()


def check_file(path: Path) -> None:
    """`InvalidConfig` if lines cannot be appended to it: nobody would see that they are lost."""
    try:
        os.close(_opened(path))
    except OSError as error:
        raise InvalidConfig(
            "a file that can be opened for appending", f"{path}: {error.strerror}", FILE_KEY
        ) from error


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


class _File:
    """Opened when there is something to write, so that a disk that failed is tried again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._failed = False

    def write(self, text: str) -> bool:
        """One write for a line: the nodes of a machine may share the file."""
        try:
            if self._descriptor is None:
                self._descriptor = _opened(self._path)
            os.write(self._descriptor, f"{text}\n".encode("ascii"))
        except OSError as error:
            if not self._failed:
                self._failed = True
                logger.error("lines are lost: %s: %s", self._path, error.strerror)  # noqa: TRY400
            self.reopen()
            return False
        self._failed = False
        return True

    def reopen(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _word(one: Operation | Resource) -> str:
    return one.name.lower().replace("_", "-")


def _of(peer: Peer, line: Line) -> Line:
    return line._replace(
        principal=peer.principal,
        host=peer.host,
        listener=peer.listener,
        tls="" if peer.tls is None else peer.tls.version,
        software=peer.software,
    )
