"""Sets of ACLs that are enough for what people and programs usually do, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.admin.types import Acl

ROLES: Final = {
    "producer": "write to topics",
    "consumer": "read topics in a group",
    "share-consumer": "take records of topics in a share group",
    "transactional": "write to topics in transactions, and commit offsets of groups in them",
    "admin": "everything",
    "table-worker": "keep tables of topics",
    "console-viewer": "see everything, and read records of topics",
}
_NEEDS: Final = {
    "producer": {"topic"},
    "consumer": {"topic", "group"},
    "share-consumer": {"topic", "group"},
    "transactional": {"topic", "transactional_id"},
    "admin": set[str](),
    "table-worker": {"topic"},
    "console-viewer": set[str](),
}
_TAKES: Final = {
    **_NEEDS,
    "transactional": {"topic", "transactional_id", "group"},
    "console-viewer": {"topic"},
}
_OPERATIONS: Final = {
    ("producer", "topic"): "write",
    ("consumer", "topic"): "read",
    ("consumer", "group"): "read",
    ("share-consumer", "topic"): "read",
    # `ShareConsumer(auto_offset_reset=...)` writes where a group starts, if that is not said yet.
    ("share-consumer", "group"): "read,alter_configs",
    ("transactional", "topic"): "write",
    ("transactional", "transactional_id"): "write",
    ("transactional", "group"): "read",
    ("table-worker", "topic"): "read,describe_configs",
    ("console-viewer", "topic"): "read",
}
_ALWAYS: Final = {
    "admin": ("all cluster", "all topic:*", "all group:*", "all txn:*"),
    "table-worker": (
        "read,write,create,describe_configs topic:ottla.tables",
        "read,describe_configs group:ottla.table.*",
    ),
    "console-viewer": (
        "describe,describe_configs cluster",
        "describe,describe_configs topic:*",
        "describe,describe_configs group:*",
        "describe txn:*",
    ),
}
_SHORT: Final = {"transactional_id": "txn"}


def check_name(acl: Acl) -> None:
    """Refuse a resource without a name, and a topic that cannot exist."""
    from ottla.metadata.names import is_legal

    kind = _SHORT.get(acl.resource, acl.resource)
    if not acl.name:
        raise typer.BadParameter(f"name the {kind}, as in {kind}:orders; '{kind}:*' is all of them")
    example = f"{acl.name}x" if acl.pattern == "prefixed" else acl.name
    if kind == "topic" and acl.name != "*" and not is_legal(example):
        raise typer.BadParameter(
            f"no topic can be called {acl.name!r}: a name has letters, digits, '.', '_' and '-'; "
            "for several topics give the command several times, or a prefix such as 'topic:orders*'"
        )


def role_acls(role: str, principal: str, resources: Sequence[str]) -> list[Acl]:
    """The ACLs of a role on resources such as topic:orders*; wrong ones end the command."""
    from ottla.client.admin.types import Acl
    from ottla.client.errors import ClientError

    rights = [tuple(right.split()) for right in _ALWAYS.get(role, ())]
    kinds = set()
    try:
        for resource in resources:
            [found] = Acl.of("allow", principal, ["describe"], resource)
            check_name(found)
            kinds.add(found.resource)
            operations = _OPERATIONS.get((role, found.resource))
            if operations is None:
                takes = ", ".join(sorted(_SHORT.get(kind, kind) for kind in _TAKES[role]))
                raise typer.BadParameter(f"the role {role} takes {takes or 'none'}, not {resource}")
            rights.append((operations, resource))
        missing = _NEEDS[role] - kinds
        if missing:
            named = " and ".join(f"{_SHORT.get(kind, kind)}:NAME" for kind in sorted(missing))
            raise typer.BadParameter(f"the role {role} needs {named}, too")
        return [
            acl
            for operations, resource in rights
            for acl in Acl.of("allow", principal, operations.split(","), resource)
        ]
    except ClientError as error:
        raise typer.BadParameter(str(error)) from None
