"""The rights of everybody where no authorizer is configured, and none is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from ottla.broker.access.authorizer import Access
    from ottla.broker.serving.context import RequestContext
    from ottla.metadata.security.acls import Operation, Resource


class _Everything:
    """What an `Access` can be asked."""

    __slots__ = ()
    principal = host = ""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return True

    def may_on_any(self, operation: Operation, resource: Resource) -> bool:
        return True

    def refused(
        self, context: RequestContext, operation: Operation, resource: Resource, name: str
    ) -> None:
        raise AssertionError("nothing is refused")


EVERYTHING: Final = cast("Access", _Everything())
