"""Changes of ACLs, quotas and users: what a form asks for, what it would do, and doing it.

A change travels from its preview to the handler that makes it as JSON, signed. Everything but
`apply` is pure.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.client.admin.acls import OPERATIONS, PERMISSIONS, RESOURCES, AclCalls
from ottla.client.admin.quotas import ENTITIES, QuotaCalls
from ottla.client.admin.types import Acl, principal_of
from ottla.client.admin.users import UserCalls
from ottla.client.errors import BadArgument
from ottla.console.missing import Missing
from ottla.console.problem import Refused
from ottla.console.text import name as shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.admin.types import QuotaDescription, UserDescription
    from ottla.client.cluster.cluster import Client

QUOTAS: Final = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "requests": "request_percentage",
    "mutations": "controller_mutation_rate",
    "connections": "connection_creation_rate",
}
"""Words of `ottla quota`, and the keys that they stand for."""
KINDS: Final = ("user", "client-id", "user and client-id", "ip")
NAMED: Final = tuple(one for one in RESOURCES if one not in ("cluster", "delegation_token"))
MAX_TEXT: Final = 500
"""Characters of a name."""
Do: TypeAlias = Literal["add", "revoke", "quota", "user"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change; `acls` for add and revoke, `entity` and `values` for a quota."""

    do: Do
    acls: tuple[Acl, ...] = ()
    entity: tuple[tuple[str, str | None], ...] = ()
    """Kinds and names; the name None is all that have no quota of their own."""
    values: tuple[tuple[str, float | None], ...] = ()
    """Keys and values; None takes the quota away."""
    user: str = ""

    @property
    def resource(self) -> str:
        """What audit lines say; without values."""
        if self.acls:
            return "acl " + "; ".join(map(str, self.acls))
        if self.do == "quota":
            keys = ", ".join(key for key, _ in self.values)
            return f"quota {entity_text(dict(self.entity))} {keys}"
        return f"user {self.user}"

    @property
    def operation(self) -> str:
        """As ACLs name it."""
        return "AlterConfigs" if self.do == "quota" else "Alter"


def to_json(change: Change) -> Any:
    return asdict(change)


def from_json(found: Any) -> Change:
    """Of what was signed here."""
    return Change(
        found["do"],
        tuple(Acl(**one) for one in found["acls"]),
        tuple((kind, name) for kind, name in found["entity"]),
        tuple((key, value) for key, value in found["values"]),
        found["user"],
    )


def parse(form: Mapping[str, str]) -> Change:
    """What a form asks for; raises `Refused` with what to write instead."""
    do = form.get("do", "")
    if do in ("add", "revoke"):
        return Change("add" if do == "add" else "revoke", (_acl(form),))
    if do == "quota":
        return Change("quota", entity=_entity(form), values=(_quota(form),))
    if do == "user":
        return Change("user", user=_name(form, "user", "the user's name"))
    raise Refused(400, "The form asks for no change that is known; load the page again.")


def _name(form: Mapping[str, str], key: str, what: str) -> str:
    found = form.get(key, "").strip()
    if not 0 < len(found) <= MAX_TEXT or not found.isprintable():
        raise Refused(400, f"Name {what}, with at most {MAX_TEXT} printable characters.")
    return found


def _acl(form: Mapping[str, str]) -> Acl:
    kind = form.get("kind", "")
    principal = principal_of(_name(form, "principal", "a principal such as alice or User:alice"))
    name = "kafka-cluster" if kind == "cluster" else _name(form, "resource", "the resource")
    host = form.get("host", "").strip() or "*"
    if len(host) > MAX_TEXT or not host.isprintable():
        raise Refused(400, "A host is an address, or * for all.")
    is_prefix = name.endswith("*") and name != "*"
    pattern = form.get("pattern") or ("prefixed" if is_prefix else "literal")
    try:
        return Acl(
            kind,  # type: ignore[arg-type]  # checked when it is made
            name.removesuffix("*") if pattern == "prefixed" else name,
            form.get("operation", ""),  # type: ignore[arg-type]
            principal,
            form.get("permission", ""),  # type: ignore[arg-type]
            pattern,  # type: ignore[arg-type]
            host,
        )
    except BadArgument as error:
        raise Refused(400, f"This is no rule: {error}.") from error


def _entity(form: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """Of a row, which names its parts as `e:user`, or of the form with its choice of kinds."""
    parts = {kind: form[f"e:{kind}"] for kind in ENTITIES if f"e:{kind}" in form}
    if not parts:
        kind = form.get("kind", "")
        if kind not in KINDS:
            raise Refused(400, f"A quota is of {', '.join(KINDS)}.")
        name, client = form.get("name", "").strip(), form.get("client", "").strip()
        is_both = kind == KINDS[2]
        parts = {
            one: client if is_both and one == "client-id" else name
            for one in ENTITIES
            if one == kind or (is_both and one != "ip")
        }
    if any(len(one) > MAX_TEXT or not one.isprintable() for one in parts.values()):
        raise Refused(400, f"A name has at most {MAX_TEXT} printable characters.")
    return tuple((kind, name or None) for kind, name in parts.items())


def _quota(form: Mapping[str, str]) -> tuple[str, float | None]:
    key = form.get("quota", "")
    if key not in QUOTAS.values():
        raise Refused(400, f"A quota is one of {', '.join(QUOTAS.values())}.")
    text = form.get("value", "").strip()
    if not text:
        return key, None
    try:
        value = float(text) if len(text) <= 30 else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise Refused(400, "A quota is a number above zero; leave it empty to take the quota away.")
    return key, value


def entity_text(entity: Mapping[str, str | None]) -> str:
    """As pages write it."""
    parts = sorted(entity.items(), reverse=True)
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in parts)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do."""

    title: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    notes: tuple[str, ...] = ()


def preview(
    change: Change,
    users: Sequence[UserDescription] | Missing,
    acls: Sequence[Acl] | Missing,
    quotas: Sequence[QuotaDescription] | Missing,
    own: str | None,
) -> Preview:
    """Says it; `own` is the user as whom the console talks to the cluster. May raise `Refused`."""
    if change.do == "quota":
        return _quota_preview(change, quotas)
    if change.do == "user":
        return _user_preview(change, users, acls, own)
    [rule] = change.acls
    known = () if isinstance(acls, Missing) else acls
    notes = []
    if change.do == "add" and rule in known:
        notes.append("This rule exists already: nothing would change.")
    if change.do == "add" and rule.permission == "deny":
        notes.append("A rule that denies wins over every rule that allows.")
    if change.do == "revoke" and not isinstance(acls, Missing) and rule not in known:
        raise Refused(409, "There is no such rule any more; load the page again.")
    if own is not None and rule.principal in (f"User:{own}", "User:*"):
        notes.append(f"It holds for {shown(own)} too, as whom you use this console.")
    if change.do == "add":
        missed = _unknown_user(rule, users)
        return Preview("Add a rule", (), (str(rule),), (*notes, *missed))
    return Preview("Delete a rule", (str(rule),), (), tuple(notes))


def _unknown_user(rule: Acl, users: Sequence[UserDescription] | Missing) -> list[str]:
    kind, _, name = rule.principal.partition(":")
    if isinstance(users, Missing) or kind != "User" or name == "*":
        return []
    if name in {one.name for one in users}:
        return []
    return [f"No user {shown(name)} has a password here; one with a certificate may have the name."]


def _quota_preview(change: Change, quotas: Sequence[QuotaDescription] | Missing) -> Preview:
    entity = dict(change.entity)
    [(key, value)] = change.values
    before = None
    for one in () if isinstance(quotas, Missing) else quotas:
        if dict(one.entity) == entity:
            before = one.values.get(key)
    whose = entity_text(entity)
    if value is None and before is None and not isinstance(quotas, Missing):
        raise Refused(409, f"{whose} has no quota {key}; load the page again.")

    def said(number: float | None) -> tuple[str, ...]:
        return () if number is None else (f"{whose}: {key} = {number:,.15g}",)

    word = "Take a quota away" if value is None else "Set a quota"
    notes = ("The limit counts from the next request on, for each broker.",)
    return Preview(word, said(before), said(value), notes)


def _user_preview(
    change: Change,
    users: Sequence[UserDescription] | Missing,
    acls: Sequence[Acl] | Missing,
    own: str | None,
) -> Preview:
    name = change.user
    if name == own:
        raise Refused(
            409,
            f"You use this console as {shown(name)}, and could not do so again. If that is meant, "
            "delete the user on the command line.",
        )
    found = None if isinstance(users, Missing) else {one.name: one for one in users}.get(name)
    if found is None and not isinstance(users, Missing):
        raise Refused(404, f"There is no user {shown(name)}.")
    by = "" if found is None else f" ({', '.join(sorted(found.mechanisms))})"
    rules = () if isinstance(acls, Missing) else acls
    stays = [one for one in rules if one.principal == f"User:{name}"]
    notes = ["Its connections are closed. A password is set on the command line only."]
    if stays:
        notes.append(f"{len(stays)} rule(s) of it stay, for a new user of this name, too.")
    return Preview("Delete a user", (f"{name}{by}",), (), tuple(notes))


async def apply(client: Client, change: Change) -> None:
    """Do it."""
    if change.do == "add":
        await AclCalls(client).create_acls(change.acls)
    elif change.do == "revoke":
        for one in change.acls:
            await AclCalls(client).delete_acls(
                resource=one.resource,
                name=one.name,
                pattern=one.pattern,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission=one.permission,
            )
    elif change.do == "quota":
        entity: Any = dict(change.entity)
        await QuotaCalls(client).alter_quotas(entity, dict(change.values))
    else:
        await UserCalls(client).delete_user(change.user)


def words() -> dict[str, tuple[str, ...]]:
    """What the forms offer."""
    return {
        "permissions": tuple(reversed(PERMISSIONS)),
        "operations": tuple(one for one in OPERATIONS if "token" not in one),
        "resources": (*NAMED, "cluster"),
        "kinds": KINDS,
        "quotas": tuple(QUOTAS.values()),
    }
