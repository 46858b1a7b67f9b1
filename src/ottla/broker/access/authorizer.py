"""Who may do what: the decision, and what is remembered of it for a connection.

| order | condition | decision |
|---|---|---|
| 1 | no authorizer is configured | allow: a peer's access is `EVERYTHING` |
| 2 | the principal is in super.users, or a node by its own credential | allow |
| 3 | write, create, delete, alter or alter configs of one of the broker's own topics | deny |
| 4 | a matching ACL denies this very operation, or all | deny |
| 5 | a matching ACL allows it, or all, or an operation that implies it | allow |
| 6 | no ACL of anybody matches the resource, and allow.everyone.if.no.acl.found | allow |
| 7 | else | deny |

Read, write, delete and alter imply describe; alter configs implies describe configs. Only an allow
implies: who is denied read may still be allowed describe. Rule 3 differs from Kafka, where an ACL
on `*` opens these topics, too: the tier's catalogue must not be forged.

An ACL matches if its principal is the asking one or `User:*`, its host the address or `*`, and its
name the resource's, a prefix of it, or `*`.

`AclIndex` follows the image's set of ACLs by the difference, so that one change among 100,000 ACLs
takes milliseconds. `Access` remembers answers until the ACLs change: `Authorizer.state` is another
object then. Pure.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.metadata.names import OWN_TOPICS, POINTER_TOPIC, TABLE_GROUP_PREFIX
from ottla.metadata.security.acls import (
    EVERYBODY,
    WILDCARD,
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    canonical_host,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ottla.broker.serving.context import RequestContext
    from ottla.metadata.image import MetadataImage

_K = TypeVar("_K")

NODE_PRINCIPAL: Final = "User:__node"
WORKER_PRINCIPAL: Final = "User:__table"
CLOSED_OPERATIONS: Final = frozenset(
    {
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
    }
)
MAX_ANSWERS: Final = 10_000
"""Names that an `Access` remembers, 1 MiB; it starts over when it has so many."""
MAX_ACCESSES: Final = 4_096
"""Remembered pairs of principal and address; the one not asked for longest goes first."""
ANY_NAME: Final = "hardcode"
"""Kafka asks about a topic of this name first when a right on any topic is enough."""

_ALL_BIT: Final = 1 << Operation.ALL
_DENY: Final = 16  # more than there are operations
_ALLOWED: Final = (1 << _DENY) - 1
# Members of enums are looked up in Python, and there may be 100,000 ACLs at start.
_LITERAL: Final = Pattern.LITERAL
_PREFIXED: Final = Pattern.PREFIXED
_ALLOW: Final = Permission.ALLOW
_IMPLIED_BY: Final[dict[int, tuple[Operation, ...]]] = {
    Operation.DESCRIBE: (
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_ALLOWING: Final[dict[int, int]] = {
    operation: _ALL_BIT | sum(1 << one for one in (operation, *_IMPLIED_BY.get(operation, ())))
    for operation in Operation
}

_ON_TABLES: Final = frozenset({Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})
_ON_POINTERS: Final = _ON_TABLES | {Operation.WRITE, Operation.CREATE}

SUPER_USER: Final = "super user"
TABLE_WORKER: Final = "the broker's own table worker"
OWN_TOPIC: Final = "the broker's own topic"
NO_ACL: Final = "no ACL allows it"
EVERYONE: Final = "allow.everyone.if.no.acl.found"


class Decision(NamedTuple):
    allowed: bool
    rule: Acl | str
    """The ACL that decided, or the rule in words."""


class _Matched(NamedTuple):
    """Where bits were found; with an operation it is an ACL again."""

    pattern: Pattern
    name: str
    principal: str
    host: str
    allow: int
    deny: int


class _Patterns:
    """The names and prefixes of one resource type that one principal has ACLs for.

    By name and host: the bits of the operations that are allowed, and `_DENY` higher those that are
    denied. There is no object for an ACL: the collector would look at 100,000 of them.
    """

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[tuple[str, str], int] = {}
        self.prefixed: dict[tuple[str, str], int] = {}
        self.lengths: dict[int, int] = {}
        """How many prefixes have a length; a prefix counts for each host."""

    def covering(self, name: str, host: str) -> Iterator[tuple[Pattern, str, str, int]]:
        """Pattern, name and host of what covers a name, and its bits."""
        for literal in (name, WILDCARD):
            for where in (host, WILDCARD):
                if bits := self.literal.get((literal, where)):
                    yield _LITERAL, literal, where, bits
        for length in self.lengths:
            if length <= len(name):
                prefix = name[:length]
                for where in (host, WILDCARD):
                    if bits := self.prefixed.get((prefix, where)):
                        yield _PREFIXED, prefix, where, bits

    def add(self, acl: Acl) -> None:
        key = acl.name, acl.host
        if acl.pattern is _LITERAL:
            self.literal[key] = self.literal.get(key, 0) | _bit(acl)
            return
        if key not in self.prefixed:
            _tally(self.lengths, len(acl.name), 1)
        self.prefixed[key] = self.prefixed.get(key, 0) | _bit(acl)

    def remove(self, acl: Acl) -> None:
        key = acl.name, acl.host
        names = self.literal if acl.pattern is _LITERAL else self.prefixed
        left = names[key] & ~_bit(acl)
        if left:
            names[key] = left
            return
        del names[key]
        if acl.pattern is _PREFIXED:
            _tally(self.lengths, len(acl.name), -1)

    @property
    def is_empty(self) -> bool:
        return not self.literal and not self.prefixed


def _bit(acl: Acl) -> int:
    return 1 << (acl.operation if acl.permission is _ALLOW else acl.operation + _DENY)


class AclIndex:
    """ACLs by principal, resource type and name."""

    def __init__(self, acls: Iterable[Acl] = (), *, everyone: bool = False) -> None:
        """`everyone`: it is asked which resources no ACL names."""
        self.everyone = everyone
        self._patterns: dict[tuple[str, int], _Patterns] = {}
        self._named: dict[tuple[int, Pattern, str], int] = {}
        """How many ACLs of anybody have a pattern; what `_patterns` says by principal."""
        self._lengths: dict[int, dict[int, int]] = {}
        """How many of them are prefixes of a length, by resource type."""
        for acl in acls:
            self.add(acl)

    def add(self, acl: Acl) -> None:
        if self.everyone:
            self._count(acl, 1)
        key = acl.principal, acl.resource
        patterns = self._patterns.get(key)
        if patterns is None:
            patterns = self._patterns[key] = _Patterns()
        patterns.add(acl)

    def remove(self, acl: Acl) -> None:
        if self.everyone:
            self._count(acl, -1)
        key = acl.principal, acl.resource
        patterns = self._patterns[key]
        patterns.remove(acl)
        if patterns.is_empty:
            del self._patterns[key]

    def matching(self, principal: str, host: str, resource: int, name: str) -> list[_Matched]:
        found: list[_Matched] = []
        for who in (principal, EVERYBODY):
            patterns = self._patterns.get((who, resource))
            if patterns is None:
                continue
            for pattern, matched, where, bits in patterns.covering(name, host):
                found.append(_Matched(pattern, matched, who, where, bits & _ALLOWED, bits >> _DENY))
        return found

    def names_resource(self, resource: int, name: str) -> bool:
        """Whether an ACL of anybody matches the resource."""
        assert self.everyone
        named = self._named
        return (
            (resource, _LITERAL, name) in named
            or (resource, _LITERAL, WILDCARD) in named
            or any(
                (resource, _PREFIXED, name[:length]) in named
                for length in self._lengths.get(resource, ())
                if length <= len(name)
            )
        )

    def _count(self, acl: Acl, step: int) -> None:
        _tally(self._named, (acl.resource, acl.pattern, acl.name), step)
        if acl.pattern is _PREFIXED:
            _tally(self._lengths.setdefault(acl.resource, {}), len(acl.name), step)

    def allows_any(self, principal: str, host: str, operation: Operation, resource: int) -> bool:
        """Whether an ACL allows the operation on a name or prefix that no ACL denies whole."""
        bits = _ALL_BIT | 1 << operation
        allowed: list[tuple[Pattern, str]] = []
        denied: set[tuple[Pattern, str]] = set()
        for who in (principal, EVERYBODY):
            patterns = self._patterns.get((who, resource))
            if patterns is None:
                continue
            for pattern, names in (
                (_LITERAL, patterns.literal),
                (_PREFIXED, patterns.prefixed),
            ):
                for (name, where), found in names.items():
                    if where in (host, WILDCARD):
                        if found & bits:
                            allowed.append((pattern, name))
                        if found >> _DENY & bits:
                            denied.add((pattern, name))
        if (_LITERAL, WILDCARD) in denied:
            return False
        prefixes = {name for pattern, name in denied if pattern is _PREFIXED}
        return any(
            (pattern, name) == (_LITERAL, WILDCARD)
            or not (
                (pattern, name) in denied
                or any(name[:length] in prefixes for length in range(1, len(name) + 1))
            )
            for pattern, name in allowed
        )


def _tally(counts: dict[_K, int], key: _K, step: int) -> None:
    """Count up or down; what is not there any more is not counted as 0."""
    left = counts.get(key, 0) + step
    if left:
        counts[key] = left
    else:
        del counts[key]


def decide(
    index: AclIndex,
    principal: str,
    host: str,
    operation: Operation,
    resource: Resource,
    name: str,
) -> Decision:
    """What the ACLs say: rules 4 to 7. `host` is in canonical form."""
    matched = index.matching(principal, host, resource, name)
    denying = _ALL_BIT | 1 << operation
    for found in matched:
        if found.deny & denying:
            bit = found.deny & denying
            return Decision(allowed=False, rule=_acl(found, resource, bit, Permission.DENY))
    allowing = _ALLOWING[operation]
    for found in matched:
        if found.allow & allowing:
            bit = found.allow & allowing
            return Decision(allowed=True, rule=_acl(found, resource, bit, Permission.ALLOW))
    if index.everyone and not index.names_resource(resource, name):
        return Decision(allowed=True, rule=EVERYONE)
    return Decision(allowed=False, rule=NO_ACL)


def _acl(found: _Matched, resource: Resource, bits: int, permission: Permission) -> Acl:
    operation = Operation((bits & -bits).bit_length() - 1)
    return Acl(
        resource, found.pattern, found.name, found.principal, found.host, operation, permission
    )


class Access:
    """The rights of one principal coming from one address; answers are remembered."""

    __slots__ = ("_authorizer", "_count", "_known", "_state", "_trusted", "host", "principal")

    def __init__(
        self, authorizer: Authorizer, principal: str, host: str, *, trusted: bool = False
    ) -> None:
        self.principal = principal
        self.host = host
        self._trusted = trusted
        self._authorizer = authorizer
        self._state: object = None
        self._known: dict[int, dict[int, dict[str, bool]]] = {}
        """Answers by operation, resource type and name."""
        self._count = 0

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        if self._state is not self._authorizer.state:
            self._forget()
        try:
            return self._known[operation][resource][name]
        except KeyError:
            decision = self.decide(operation, resource, name)
            return self._remember(operation, resource, name, allowed=decision.allowed)

    def may_on_any(self, operation: Operation, resource: Resource) -> bool:
        """Whether there may be a name on which the operation is allowed."""
        if self._state is not self._authorizer.state:
            self._forget()
        try:
            return self._known[operation][resource][""]  # nothing has this name
        except KeyError:
            allowed = self._trusted or self._authorizer.allows_any(self, operation, resource)
            return self._remember(operation, resource, "", allowed=allowed)

    def decide(self, operation: Operation, resource: Resource, name: str) -> Decision:
        """The decision and its reason, asked anew."""
        if self._trusted:
            return Decision(allowed=True, rule=SUPER_USER)
        return self._authorizer.decide(self.principal, self.host, operation, resource, name)

    def refused(
        self, context: RequestContext, operation: Operation, resource: Resource, name: str
    ) -> None:
        """Report that a request was refused for this."""
        report = self._authorizer.report
        if report is not None:
            report(context, operation, resource, name)

    def _remember(
        self, operation: Operation, resource: Resource, name: str, *, allowed: bool
    ) -> bool:
        if self._count >= MAX_ANSWERS:
            self._forget()
        self._count += 1
        self._known.setdefault(operation, {}).setdefault(resource, {})[name] = allowed
        return allowed

    def _forget(self) -> None:
        self._state = self._authorizer.state
        self._known = {}
        self._count = 0


class WorkerAccess(Access):
    """The rights of the table worker that the broker started; ACLs may give it more.

    They follow the settings of topics, so no answer is remembered.
    """

    __slots__ = ()

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.decide(operation, resource, name).allowed

    def decide(self, operation: Operation, resource: Resource, name: str) -> Decision:
        if self._authorizer.lets_worker(operation, resource, name):
            return Decision(allowed=True, rule=TABLE_WORKER)
        return super().decide(operation, resource, name)

    def may_on_any(self, operation: Operation, resource: Resource) -> bool:
        if resource is Resource.TOPIC and operation in _ON_POINTERS:
            return True
        return super().may_on_any(operation, resource)


class Authorizer:
    """The ACLs of the cluster and the configured rights of one node."""

    def __init__(
        self,
        acls: Iterable[Acl],
        *,
        super_users: Iterable[str] = (),
        everyone: bool = False,
        own_topics: frozenset[str] = OWN_TOPICS,
        topic_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """`own_topics` are those that the broker alone changes, whatever ACLs say."""
        self._own_topics = own_topics
        self._acls = frozenset(acls)
        self._index = AclIndex(self._acls, everyone=everyone)
        self._super_users = frozenset(super_users)
        self._topic_configs = topic_configs
        self._accesses: dict[tuple[str, str, bool], Access] = {}
        self.state = object()
        """Another object after each change of the ACLs."""
        self.report: Callable[[RequestContext, Operation, Resource, str], None] | None = None
        """Called for each request that is refused."""

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Follow the image."""
        self._topic_configs = after.topic_configs
        acls = after.acls
        if acls is self._acls:
            return
        for acl in self._acls - acls:
            self._index.remove(acl)
        for acl in acls - self._acls:
            self._index.add(acl)
        self._acls = acls
        self.state = object()

    def access(self, principal: str, host: str, *, from_node: bool = False) -> Access:
        """The rights of a principal; `from_node` if it has proven to be a node of the cluster."""
        key = principal, canonical_host(host), from_node
        access = self._accesses.pop(key, None)
        if access is None:
            trusted = principal in self._super_users or (from_node and principal == NODE_PRINCIPAL)
            kind = WorkerAccess if from_node and principal == WORKER_PRINCIPAL else Access
            access = kind(self, principal, key[1], trusted=trusted)
            if len(self._accesses) >= MAX_ACCESSES:
                del self._accesses[next(iter(self._accesses))]
        self._accesses[key] = access
        return access

    def decide(
        self, principal: str, host: str, operation: Operation, resource: Resource, name: str
    ) -> Decision:
        """Rules 3 to 7."""
        is_closed = name in self._own_topics and operation in CLOSED_OPERATIONS
        if is_closed and resource is Resource.TOPIC:
            return Decision(allowed=False, rule=OWN_TOPIC)
        return decide(self._index, principal, host, operation, resource, name)

    def lets_worker(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Rule 2 for the table worker: topics with a table, their pointers, and their groups."""
        if resource is Resource.TOPIC:
            if name == POINTER_TOPIC:
                return operation in _ON_POINTERS
            is_table = self._topic_configs.get(name, {}).get("ottla.table.enable") == "true"
            return is_table and operation in _ON_TABLES
        return (
            resource is Resource.GROUP
            and name.startswith(TABLE_GROUP_PREFIX)
            and operation in (Operation.READ, Operation.DESCRIBE)
        )

    def allows_any(self, access: Access, operation: Operation, resource: Resource) -> bool:
        return self.decide(
            access.principal, access.host, operation, resource, ANY_NAME
        ).allowed or self._index.allows_any(access.principal, access.host, operation, resource)


def parsed_super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`, which has `;` between them."""
    return frozenset(user for one in text.split(";") if (user := one.strip()))
