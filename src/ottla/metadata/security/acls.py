"""ACLs: values, which are valid, and filters. The numbers are the protocol's.

An ACL has no id: it is its seven values, and an image holds a set of them. Adding one that is there
changes nothing, removing one cannot touch another.

Hosts are addresses in canonical form: `::ffff:10.0.0.1` is `10.0.0.1`, and every way to write an
IPv6 address is one host.
"""

from __future__ import annotations

import socket
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.metadata.errors import InvalidAcl

ANY: Final = 1
"""In a filter: every resource type, pattern type, operation or permission."""
MATCH: Final = 2
"""Pattern type of a filter: the patterns that cover the name."""
WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
# Both bound what one administrator can make every node hold: 100,000 ACLs are 30 MiB.
MAX_ACLS: Final = 100_000
MAX_ACLS_OF_A_REQUEST: Final = 10_000
# Longer names exist nowhere in the protocol's own rules; a text field could carry 32 KiB.
MAX_NAME_LENGTH: Final = 1_000


class _Number(IntEnum):
    """A number of the protocol.

    Enum hashes the name, in Python; these are part of 100,000 ACLs in a set, and of what each
    request looks up.
    """

    __hash__ = int.__hash__


class Resource(_Number):
    """What an ACL protects. Delegation tokens and users are stored, and nothing asks for them."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(_Number):
    LITERAL = 3
    PREFIXED = 4


class Operation(_Number):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Number):
    DENY = 2
    ALLOW = 3


_RESOURCES: Final = frozenset(Resource)
_PATTERNS: Final = frozenset(Pattern)
_OPERATIONS: Final = frozenset(Operation)
_PERMISSIONS: Final = frozenset(Permission)


class Acl(NamedTuple):
    """Allows or denies `principal`, coming from `host`, an operation on matching resources."""

    resource: Resource
    pattern: Pattern
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """Selects ACLs. `ANY` and None select all."""

    resource: int = ANY
    pattern: int = ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (ANY, acl.resource)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (ANY, MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != MATCH:
            return False
        if acl.pattern is Pattern.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == WILDCARD


def checked_acl(
    resource: int,
    pattern: int,
    name: str,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    """The ACL with its host in canonical form, or an `InvalidAcl` that says what is wrong."""
    if resource not in _RESOURCES:
        raise InvalidAcl("a resource type of 2 to 7", resource, "ACL")
    if pattern not in _PATTERNS:
        raise InvalidAcl("pattern type 3 (literal) or 4 (prefixed)", pattern, "ACL")
    if not name or len(name) > MAX_NAME_LENGTH:
        raise InvalidAcl(
            f"a resource name of 1 to {MAX_NAME_LENGTH} characters", f"{len(name)}", "ACL"
        )
    if resource == Resource.CLUSTER and name != CLUSTER_NAME:
        raise InvalidAcl(f"{CLUSTER_NAME!r}, the only cluster there is", repr(name), "ACL")
    if operation not in _OPERATIONS:
        raise InvalidAcl("an operation of 2 to 15", operation, "ACL")
    if permission not in _PERMISSIONS:
        raise InvalidAcl("permission 2 (deny) or 3 (allow)", permission, "ACL")
    return Acl(
        Resource(resource),
        Pattern(pattern),
        name,
        checked_principal(principal),
        checked_host(host),
        Operation(operation),
        Permission(permission),
    )


def checked_filter(
    resource: int,
    pattern: int,
    name: str | None,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """The filter with its host in canonical form, or an `InvalidAcl`."""
    for what, value, highest in (
        ("resource type", resource, Resource.USER),
        ("pattern type", pattern, Pattern.PREFIXED),
        ("operation", operation, Operation.TWO_PHASE_COMMIT),
        ("permission", permission, Permission.ALLOW),
    ):
        if not ANY <= value <= highest:
            raise InvalidAcl(f"a {what} of 1 (any) to {highest}", value, "ACL filter")
    at = None if host is None else canonical_host(host)
    return AclFilter(resource, pattern, name, principal, at, operation, permission)


def checked_principal(principal: str) -> str:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name) or len(principal) > MAX_NAME_LENGTH:
        raise InvalidAcl("a principal like User:alice", repr(principal[:100]), "ACL")
    return principal


def checked_host(host: str) -> str:
    canonical = canonical_host(host)
    if canonical != WILDCARD and not is_address(canonical):
        raise InvalidAcl("an IP address or *", repr(host[:100]), "host of an ACL")
    return canonical


def canonical_host(host: str) -> str:
    """An address as it is compared; anything else as it is."""
    if ":" not in host:
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except (OSError, UnicodeEncodeError, ValueError):
        return host
    if packed[:12] == bytes(10) + b"\xff\xff":
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.inet_ntop(socket.AF_INET6, packed)


def is_address(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
    except (OSError, UnicodeEncodeError, ValueError):
        return False
    return True
