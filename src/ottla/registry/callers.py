"""Who asks the registry, and what they may. The broker knows; beside Apache Kafka it is anybody."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ottla.registry.errors import Code, RegistryError
from ottla.registry.names import split

if TYPE_CHECKING:
    from ottla.http.messages import Answer, Request
    from ottla.http.routes import Handler


class Action(Enum):
    READ = "read"
    WRITE = "write"
    DELETE = "delete"


class Caller(Protocol):
    def may(self, action: Action, topic: str) -> bool:
        """Whether it may do this with the subjects of a topic."""

    def may_configure(self) -> bool:
        """Whether it may set what counts for all subjects."""

    def refused(self, api: str, action: Action | None, topic: str) -> None:
        """It asked for what it may not; no action: to set what counts for all."""

    def changed(self, api: str, subject: str, outcome: str) -> None:
        """It changed something, or tried to."""

    async def answer(self, request: Request, handler: Handler) -> Answer:
        """What the handler answers; `Refused` to a caller that is over a quota."""


class Anybody:
    """May do everything."""

    def may(self, action: Action, topic: str) -> bool:
        return True

    def may_configure(self) -> bool:
        return True

    def refused(self, api: str, action: Action | None, topic: str) -> None:
        raise AssertionError("nothing is refused")

    def changed(self, api: str, subject: str, outcome: str) -> None:
        pass

    async def answer(self, request: Request, handler: Handler) -> Answer:
        return await handler(request)


def need(caller: Caller, api: str, action: Action, subject: str) -> None:
    """Refuse what the caller may not do with a subject, whether it exists or not."""
    topic = split(subject).topic
    if not caller.may(action, topic):
        caller.refused(api, action, topic)
        raise RegistryError(Code.NOT_ALLOWED, f"no right to {action.value} the subject {subject}")


def need_all(caller: Caller, api: str) -> None:
    """Refuse to set what counts for all subjects."""
    if not caller.may_configure():
        caller.refused(api, None, "")
        raise RegistryError(Code.NOT_ALLOWED, "no right to set what counts for all subjects")
