"""Write docs/reference/permissions.md from the table of permissions.

python scripts/generate_permissions.py            write the page
python scripts/generate_permissions.py --check    say whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.access.permissions import PERMISSIONS, ROUTES
from ottla.broker.serving.apis import SERVED
from ottla.wire.messages import message

if TYPE_CHECKING:
    from ottla.broker.access.permissions import Need, Right

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "permissions.md"

HEAD = """# Permissions

Made by `scripts/generate_permissions.py` from the table that the tests hold the broker to; do not
edit the table here.

Rights count where an authorizer is configured (`authorizer.class.name=standard`). Without one
everybody may do everything. A request needs each right in its rows, in this order; *or* means that
one of them is enough. What a user may not see is answered the same way whether it exists or not.

How a right is found:

1. Users in `super.users` may do everything; so may nodes among themselves.
2. The broker's own topics (`__consumer_offsets`, `__transaction_state`, `__share_group_state`,
   `__remote_log_metadata`) are closed: no ACL allows to write, create, delete or alter them. Kafka
   opens them to an ACL on `*`.
3. An ACL that denies the operation, or all, wins.
4. An ACL that allows the operation, or all, allows it. Read, write, delete and alter include
   describe; alter configs includes describe configs.
5. Where no ACL of anybody names the resource, `allow.everyone.if.no.acl.found` decides; otherwise
   the answer is no.

An ACL names a resource by its whole name, by a prefix, or all of a kind by `*`; a principal
(`User:alice`, or `User:*` for everybody); and an address or `*`.

| key | API | needs | when | refused |
|---|---|---|---|---|
"""

TAIL = """
A fetch session and a share session belong to the principal that opened them; another one is told
that there is no such session (70, 122). Resource errors: 29 topic, 30 group, 31 cluster,
53 transactional id.
"""


HTTP = """
## HTTP

| route | needs | refused |
|---|---|---|
"""


def page() -> str:
    rows = [row for key in sorted(SERVED) for row in _rows(key)]
    routes = [
        f"| `{route}` | {needs} | {refused} |\n" for route, (needs, refused) in ROUTES.items()
    ]
    return HEAD + "".join(rows) + TAIL + HTTP + "".join(routes)


def _rows(key: int) -> list[str]:
    name = message(key, request=True).root.__name__.removesuffix("Request")
    needs = PERMISSIONS[key]
    if not needs:
        return [f"| {key} | {name} | nothing | | |\n"]
    first = [f"{key} | {name}", *[" | "] * (len(needs) - 1)]
    return [
        f"| {start} | {_rights(need)} | {need.when} | {_refused(need)} |\n"
        for start, need in zip(first, needs, strict=True)
    ]


def _rights(need: Need) -> str:
    return " or ".join(map(_right, need.rights))


def _right(right: Right) -> str:
    operation, resource = (
        one.name.lower().replace("_", " ") for one in (right.operation, right.resource)
    )
    return f"{operation} on {'the cluster' if resource == 'cluster' else resource}"


def _refused(need: Need) -> str:
    return need.refused if need.code is None else f"{need.code.value}: {need.refused}"


def main() -> int:
    if "--check" not in sys.argv:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() != page():
        print("docs/reference/permissions.md is out of date; run scripts/generate_permissions.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
