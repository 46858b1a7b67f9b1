"""Client quotas: the entities they are given to, which are valid, and filters.

An entity is a user, a client id, both, or an IP address; a name of None is the default of all that
have no quota of their own. Which quota counts for a connection is decided in
`ottla.broker.access.quotas`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata.errors import InvalidQuota
from ottla.metadata.security.acls import canonical_host, is_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
IP_KEYS: Final = frozenset({CONNECTION_CREATION_RATE})
# Rates in bytes and connections are whole numbers in Kafka, which clients and tools rely on.
WHOLE_KEYS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})
MAX_ENTITIES: Final = 10_000  # bounds what one administrator can make every node hold
MAX_NAME_LENGTH: Final = 1_000

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


class EntityPart(NamedTuple):
    """One component of an entity: its type, and its name or None for the default."""

    kind: str
    name: str | None


Entity = tuple[EntityPart, ...]
"""Components sorted by type, at most one of each."""


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quotas of one entity by their keys; never empty."""

    entity: tuple[EntityPart, ...]
    values: Mapping[str, float]


def entity_key(entity: Entity) -> str:
    """The text under which an image has the entity."""
    return json.dumps(dict(entity), ensure_ascii=False, separators=(",", ":"))


def checked_entity(parts: Iterable[EntityPart]) -> Entity:
    """The components in order, or an `InvalidQuota`."""
    given = list(parts)
    kinds = [part.kind for part in given]
    _check_kinds(kinds)
    if not kinds:
        raise InvalidQuota(f"a {USER}, {CLIENT_ID} or {IP}", "no entity", "client quota")
    if IP in kinds and len(kinds) > 1:
        raise InvalidQuota(f"{IP} alone", ", ".join(sorted(kinds)), "client quota")
    return tuple(sorted((_checked_part(part) for part in given), key=lambda part: part.kind))


def _check_kinds(kinds: list[str]) -> None:
    for kind in kinds:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidQuota(f"{USER}, {CLIENT_ID} or {IP}", repr(kind[:100]), "client quota")
    if len(set(kinds)) != len(kinds):
        raise InvalidQuota("each type once", ", ".join(kinds), "client quota")


def _checked_part(part: EntityPart) -> EntityPart:
    if part.name is None:
        return part
    if not part.name or len(part.name) > MAX_NAME_LENGTH:
        raise InvalidQuota(
            f"a name of 1 to {MAX_NAME_LENGTH} characters, or null for the default",
            f"{len(part.name)}",
            f"{part.kind} of a client quota",
        )
    if part.kind != IP:
        return part
    address = canonical_host(part.name)
    if not is_address(address):
        raise InvalidQuota(
            "an IP address, or null for the default", repr(part.name[:100]), "client quota"
        )
    return EntityPart(IP, address)


def check_value(entity: Entity, key: str, value: float) -> None:
    """Refuse a key the entity cannot have, or a value that is no rate."""
    check_key(entity, key)
    if not math.isfinite(value) or value <= 0:
        raise InvalidQuota("a number above 0", value, key)
    if key in WHOLE_KEYS and value != int(value):
        raise InvalidQuota("a whole number", value, key)


def check_key(entity: Entity, key: str) -> None:
    keys = IP_KEYS if entity[0].kind == IP else CLIENT_KEYS
    if key not in keys:
        raise InvalidQuota(f"one of {', '.join(sorted(keys))}", repr(key[:100]), "client quota")


class FilterPart(NamedTuple):
    """`match` is `EXACT` for `name`, `DEFAULT`, or `SPECIFIED` for any name and the default."""

    kind: str
    match: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Selects entities that match each part; `strict` means that they have no other parts."""

    parts: tuple[FilterPart, ...]
    strict: bool = False

    def matches(self, entity: Entity) -> bool:
        if self.strict and len(entity) != len(self.parts):
            return False
        names = dict(entity)
        return all(_part_matches(part, names) for part in self.parts)


def _part_matches(part: FilterPart, names: Mapping[str, str | None]) -> bool:
    if part.kind not in names:
        return False
    if part.match == SPECIFIED:
        return True
    return names[part.kind] == part.name


def checked_filter(parts: Iterable[FilterPart], *, strict: bool) -> QuotaFilter:
    """The filter, or an `InvalidQuota`."""
    given = tuple(parts)
    kinds = [part.kind for part in given]
    _check_kinds(kinds)
    if IP in kinds and len(kinds) > 1:
        raise InvalidQuota(f"{IP} alone", ", ".join(sorted(kinds)), "client quota")
    return QuotaFilter(tuple(map(_checked_filter_part, given)), strict)


def _checked_filter_part(part: FilterPart) -> FilterPart:
    if part.match not in (EXACT, DEFAULT, SPECIFIED):
        raise InvalidQuota("match type 0, 1 or 2", part.match, "client quota")
    if (part.name is None) == (part.match == EXACT):
        raise InvalidQuota(
            "a name with match type 0 and none with 1 and 2", repr(part.name), "client quota"
        )
    if part.kind == IP and part.name is not None:
        return part._replace(name=canonical_host(part.name))
    return part
