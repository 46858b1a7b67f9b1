"""`ottla acl ...`: who may do what with which topic, group, transaction or with the cluster."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    with_admin,
)
from ottla.cli.output import print_json, print_list
from ottla.cli.roles import ROLES, check_name, role_acls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.access.authorizer import Decision
    from ottla.cli.output import Cell, Value
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.types import Acl, AclPermission
    from ottla.metadata.security.acls import Acl as StoredAcl

app = typer.Typer(help="Allow and deny, list and test.", no_args_is_help=True)

Words: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="OPERATION... on RESOURCE",
        help="Operations such as read, write or all; then topic:NAME, group:NAME, txn:NAME or "
        "cluster. A star at the end of a name makes it a prefix.",
    ),
]
Principal: TypeAlias = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="A user, such as alice or User:alice; * is all.")
]
Host: TypeAlias = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Only from this address.")
]
_CONFIGS = ("describe_configs", "alter_configs")
OPERATIONS = {
    "topic": ("all", "read", "write", "create", "delete", "alter", "describe", *_CONFIGS),
    "group": ("all", "read", "delete", "describe", *_CONFIGS),
    "transactional_id": ("all", "write", "describe", "two_phase_commit"),
    "cluster": (
        *("all", "create", "alter", "describe", *_CONFIGS, "cluster_action", "idempotent_write"),
    ),
}
"""What requests ask for, by the kind of resource."""
SETTINGS = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")


@app.command()
def allow(
    principal: Principal,
    words: Words,
    host: Host = "*",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Allow a user to do something.

    \b
    Examples:
        ottla acl allow alice read on topic:orders
        ottla acl allow alice read describe on 'topic:orders*' --host 10.0.0.7
        ottla acl allow '*' describe on cluster
        ottla acl allow 'CN=alice,O=My Company' read on 'group:my group'
    """
    _make(_parsed("allow", principal, words, host), bootstrap, timeout, as_json=as_json)


@app.command()
def deny(
    principal: Principal,
    words: Words,
    host: Host = "*",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Deny a user something, whatever other ACLs allow.

    \b
    Examples:
        ottla acl deny mallory all on 'topic:*'
    """
    _make(_parsed("deny", principal, words, host), bootstrap, timeout, as_json=as_json)


@app.command()
def grant(
    principal: Principal,
    role: Annotated[str, typer.Argument(metavar="ROLE", help=f"One of {', '.join(ROLES)}.")],
    resources: Annotated[
        list[str] | None,
        typer.Argument(metavar="RESOURCE...", help="topic:NAME, group:NAME or txn:NAME."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the ACLs and make none.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Give a user the ACLs of a role; they are printed before they are made.

    \b
    Examples:
        ottla acl grant alice producer topic:orders
        ottla acl grant bob consumer 'topic:orders*' group:billing
        ottla acl grant carol transactional topic:orders txn:carol-1 --dry-run
        ottla acl grant root admin
    """
    if role not in ROLES:
        raise typer.BadParameter(f"{role!r} is none of {', '.join(ROLES)}", param_hint="ROLE")
    acls = role_acls(role, principal, resources or [])
    if dry_run:
        _print(acls, as_json=as_json)
    else:
        if not as_json:
            _echo(acls)
        with_admin(bootstrap, timeout, lambda admin: admin.create_acls(acls))
        if as_json:
            print_json([_value(acl) for acl in acls])


@app.command("list")
def list_(
    resource: Annotated[
        str | None,
        typer.Option("--for", metavar="RESOURCE", help="Only ACLs that apply to this resource."),
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="PRINCIPAL", help="Only those of a user.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List the ACLs.

    \b
    Examples:
        ottla acl list
        ottla acl list --for topic:orders
        ottla acl list --principal alice --json
    """
    wanted = None if resource is None else _resource(resource)
    who = None if principal is None else _principal(principal)

    async def find(admin: Admin) -> list[Acl]:
        if wanted is None:
            return await admin.describe_acls(principal=who)
        return await admin.describe_acls(
            resource=wanted.resource, name=wanted.name, covering=True, principal=who
        )

    _print(with_admin(bootstrap, timeout, find), as_json=as_json)


@app.command()
def revoke(
    principal: Principal,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPERATION... on RESOURCE]",
            help="As for allow; without an operation all of them.",
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All ACLs of the user, on all resources.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="Only ACLs for this address."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Delete ACLs of a user on one resource, or all, those that allow and those that deny.

    \b
    Examples:
        ottla acl revoke alice read on topic:orders
        ottla acl revoke alice on 'topic:orders*'
        ottla acl revoke alice --all
    """
    if all_ == bool(words):
        raise typer.BadParameter("name a resource, as in on topic:orders, or give --all")
    who = _principal(principal)
    operations, what = _split(words or ["on", "cluster"])
    resource = _resource(what)
    asked = _parsed("allow", principal, words or [], "*") if operations else [None]

    async def remove(admin: Admin) -> list[Acl]:
        if all_:
            return await admin.delete_acls(principal=who, host=host)
        return [
            gone
            for acl in asked
            for gone in await admin.delete_acls(
                resource=resource.resource,
                name=resource.name,
                pattern=resource.pattern,
                principal=who,
                host=host,
                operation=None if acl is None else acl.operation,
            )
        ]

    gone = with_admin(bootstrap, timeout, remove)
    if as_json:
        print_json([_value(acl) for acl in gone])
        return
    for acl in gone:
        typer.echo(f"deleted {acl}")
    if not gone:
        typer.echo("no ACLs")


@app.command("test")
def tried(
    principal: Principal,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="OPERATION [on] RESOURCE",
            help="An operation such as read; then topic:NAME, group:NAME, txn:NAME or cluster.",
        ),
    ],
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="As if from this address.")
    ] = "127.0.0.1",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Say whether a user may do something, and which rule decides; status 1 if it may not.

    \b
    Examples:
        ottla acl test alice read on topic:orders
        ottla acl test alice write topic:orders --host 10.0.0.7 --json
    """
    match words:
        case [operation, resource] | [operation, "on", resource]:
            [asked] = _parsed("allow", principal, [operation, "on", resource], "*")
        case _:
            raise typer.BadParameter("write OPERATION on RESOURCE, such as read on topic:orders")
    decision = with_admin(bootstrap, timeout, lambda admin: _decide(admin, asked, host))
    rule = decision.rule if isinstance(decision.rule, str) else str(worded(decision.rule))
    if as_json:
        print_json({"allowed": decision.allowed, "rule": rule})
    else:
        typer.echo(f"{'allowed' if decision.allowed else 'denied'}: {rule}")
    if not decision.allowed:
        raise typer.Exit(1)


async def _decide(admin: Admin, asked: Acl, host: str) -> Decision:
    """As the broker does, from its ACLs and its settings."""
    from ottla.broker.access.authorizer import Authorizer, Decision, parsed_super_users

    [broker, *_] = (await admin.describe_cluster()).brokers
    entries = await admin.describe_configs("broker", str(broker.id), SETTINGS)
    settings = {entry.name: entry.value or "" for entry in entries}
    if not settings["authorizer.class.name"]:
        return Decision(allowed=True, rule="no authorizer is configured")
    acls = await admin.describe_acls(resource=asked.resource, name=asked.name, covering=True)
    authorizer = Authorizer(
        map(numbered, acls),
        super_users=parsed_super_users(settings["super.users"]),
        everyone=settings["allow.everyone.if.no.acl.found"] == "true",
    )
    question = numbered(asked)
    access = authorizer.access(question.principal, host)
    return access.decide(question.operation, question.resource, question.name)


def numbered(acl: Acl) -> StoredAcl:
    """An ACL with the protocol's numbers."""
    from ottla.client.admin.acls import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES
    from ottla.metadata.security.acls import checked_acl

    return checked_acl(
        RESOURCES[acl.resource],
        PATTERNS[acl.pattern],
        acl.name,
        acl.principal,
        acl.host,
        OPERATIONS[acl.operation],
        PERMISSIONS[acl.permission],
    )


def worded(acl: StoredAcl) -> Acl:
    """An ACL with words in place of numbers."""
    from ottla.client.admin.types import Acl

    return Acl(
        acl.resource.name.lower(),  # type: ignore[arg-type]  # the words are the members' names
        acl.name,
        acl.operation.name.lower(),  # type: ignore[arg-type]
        acl.principal,
        acl.permission.name.lower(),  # type: ignore[arg-type]
        acl.pattern.name.lower(),  # type: ignore[arg-type]
        acl.host,
    )


def _make(acls: Sequence[Acl], bootstrap: str, timeout: float, *, as_json: bool) -> None:
    """Make ACLs, and print them when the broker has them."""
    with_admin(bootstrap, timeout, lambda admin: admin.create_acls(acls))
    if as_json:
        print_json([_value(acl) for acl in acls])
    else:
        _echo(acls)


def _echo(acls: Sequence[Acl]) -> None:
    for acl in acls:
        typer.echo(str(acl))


def _parsed(
    permission: AclPermission, principal: str, words: Sequence[str], host: str
) -> list[Acl]:
    from ottla.client.admin.types import Acl
    from ottla.client.errors import ClientError

    operations, what = _split(words)
    if not operations:
        raise typer.BadParameter("name an operation, such as read, before 'on'")
    given = [
        one.replace("-", "_").lower() for words in operations for one in words.split(",") if one
    ]
    try:
        found = Acl.of(permission, principal, given, what)
    except ClientError as error:
        raise typer.BadParameter(str(error)) from None
    for acl in found:
        check_name(acl)
        known = OPERATIONS.get(acl.resource)
        if known is not None and acl.operation not in known:
            raise typer.BadParameter(
                f"{acl.operation} on {what} would have no effect: requests about a {acl.resource} "
                f"ask for {', '.join(known)}"
            )
    return [dataclasses.replace(acl, host=host) for acl in found]


def _split(words: Sequence[str]) -> tuple[list[str], str]:
    """The operations, and the resource after `on`."""
    *operations, on, what = ["", "", *words]
    if on != "on":
        raise typer.BadParameter("write OPERATION... on RESOURCE, such as read on topic:orders")
    return [one for one in operations if one], what


def _resource(text: str) -> Acl:
    from ottla.client.admin.types import Acl
    from ottla.client.errors import ClientError

    try:
        [found] = Acl.of("allow", "nobody", ["describe"], text)
    except ClientError as error:
        raise typer.BadParameter(str(error)) from None
    return found


def _principal(text: str) -> str:
    from ottla.client.admin.types import principal_of

    return principal_of(text)


def _print(acls: Sequence[Acl], *, as_json: bool) -> None:
    if as_json:
        print_json([_value(acl) for acl in acls])
        return
    rows: list[dict[str, Cell]] = [
        {
            "principal": acl.principal,
            "permission": acl.permission,
            "operation": acl.operation,
            "resource": acl.resource,
            "name": acl.name + ("*" if acl.pattern == "prefixed" else ""),
            "host": acl.host,
        }
        for acl in acls
    ]
    columns = ("principal", "permission", "operation", "resource", "name", "host")
    print_list("ACLs", rows, columns, as_json=False)


def _value(acl: Acl) -> Value:
    return dataclasses.asdict(acl)
