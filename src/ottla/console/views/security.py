"""Who may do what: users, ACLs and quotas. A list that may not be seen says what right it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.console.missing import Known, Missing
from ottla.console.rights import entity_text
from ottla.console.views.frame import Frame, frame
from ottla.console.views.table import ALL, Query, Table, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.admin.types import Acl, QuotaDescription, UserDescription
    from ottla.console.attention import Attention
    from ottla.console.look import Look


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user and how it may log in; salts and keys are never asked for."""

    name: str
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AclRow:
    """One rule; `resource` with a star at its end means all names that begin so."""

    principal: str
    permission: str
    operation: str
    kind: str
    resource: str
    host: str
    pattern: str = "literal"


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One limit of an entity; bytes a second, percent of a core, or changes a second."""

    entity: str
    quota: str
    value: float
    parts: tuple[tuple[str, str | None], ...] = ()
    """Kinds and names; null is all that have no quota of their own."""


@dataclass(frozen=True, slots=True)
class SecurityPage:
    """Users, ACLs by principal, quotas."""

    frame: Frame
    users: Known[tuple[UserRow, ...]]
    acls: Known[Table[AclRow]]
    quotas: Known[tuple[QuotaRow, ...]]


def page(
    look: Look,
    attention: Attention,
    users: Sequence[UserDescription] | Missing,
    acls: Sequence[Acl] | Missing,
    quotas: Sequence[QuotaDescription] | Missing,
    query: Query = ALL,
) -> SecurityPage:
    """The page; the filter is for ACLs."""
    return SecurityPage(
        frame(look, attention),
        users
        if isinstance(users, Missing)
        else tuple(
            UserRow(one.name, tuple(sorted(one.mechanisms)))
            for one in sorted(users, key=lambda one: one.name)
        ),
        acls if isinstance(acls, Missing) else _acls(acls, query),
        quotas if isinstance(quotas, Missing) else tuple(_quotas(quotas)),
    )


def _acls(acls: Sequence[Acl], query: Query) -> Table[AclRow]:
    rows = [
        AclRow(
            one.principal,
            one.permission,
            one.operation,
            one.resource,
            one.name + ("*" if one.pattern == "prefixed" else ""),
            one.host,
            one.pattern,
        )
        for one in acls
    ]
    wanted = query.contains.casefold()
    chosen = [one for one in rows if wanted in f"{one.principal} {one.resource}".casefold()]
    return table(
        chosen,
        query,
        "principal",
        lambda one: f"{one.principal} {one.kind} {one.resource} {one.operation}",
    )


def _quotas(quotas: Sequence[QuotaDescription]) -> list[QuotaRow]:
    return [
        QuotaRow(entity_text(one.entity), key, value, tuple(one.entity.items()))
        for one in quotas
        for key, value in sorted(one.values.items())
    ]
