"""Results of the Admin client: small immutable values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, get_args

from ottla.client.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ottla.client.cluster.view import Broker, Partition, TopicPartition
    from ottla.client.reader.types import Timestamp

ConfigKind: TypeAlias = Literal["topic", "broker", "group"]

# A point in a partition's log: one of its ends, the newest record, the borders of its tiers, or the
# first record at or after a time (with a zone).
Position: TypeAlias = (
    "Literal['earliest', 'latest', 'max-timestamp', 'earliest-local', 'latest-tiered', "
    "'earliest-pending-upload'] | datetime | Timestamp"
)


class ConfigSource(Enum):
    """Where a configuration value comes from, by Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting; a sensitive one has no value."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str = ""
    """Only if it was asked for, and the broker tells it."""

    @property
    def is_default(self) -> bool:
        """Whether it has its default value."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The live brokers and the controller."""

    cluster_id: str | None
    controller_id: int
    brokers: Sequence[Broker]


class NodeState(Enum):
    """What a node does: a draining one gives its partitions away, a fenced one is down."""

    ACTIVE = "active"
    DRAINING = "draining"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A registered node; `leaders` is None if the broker does not count them.

    `load` is what the node says of the last seconds: `cpu` (processors in use), `requests` a second
    and open `connections`. None if it is down, or another kind of broker.
    """

    broker: Broker
    state: NodeState
    leaders: int | None
    load: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas of a partition that is being moved."""

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A directory of a broker, with the bytes of each partition in it.

    `total_bytes` and `usable_bytes` are None if an old broker does not report them; `error` says
    why the directory is offline, and is None if it is not.
    """

    broker_id: int
    path: str
    total_bytes: int | None
    usable_bytes: int | None
    sizes: Mapping[TopicPartition, int]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic; counts are -1 if an old broker does not report them."""

    name: str
    id: bytes
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic by name."""

    name: str
    id: bytes
    is_internal: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions; `configs` is empty unless requested."""

    name: str
    id: bytes
    is_internal: bool
    partitions: Sequence[Partition]
    configs: Sequence[ConfigEntry] = ()


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset in a log; both are -1 where no record is at or after the asked time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group; state and type are "" if an old broker does not report them."""

    id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and the partitions it has."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members; `type` is "classic" or "consumer"."""

    id: str
    type: str
    state: str
    assignor: str
    coordinator_id: int
    members: Sequence[GroupMember]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The committed offset in a partition; `end` and `lag` are None if it was deleted."""

    topic: str
    partition: int
    offset: int
    metadata: str | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """How many records, at most, are still to come."""
        return None if self.end is None else max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """A member of a share group, its topics and partitions."""

    id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    assignment: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group with its members; partitions may belong to several of them."""

    id: str
    state: str
    assignor: str
    epoch: int
    assignment_epoch: int
    coordinator_id: int
    members: Sequence[ShareGroupMember]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """A share-partition: below `start_offset` all is settled, `lag` records are not.

    The start offset is the last one stored, which may trail the settled records; the lag is exact.
    Both are None until a member fetches; the lag is also None with brokers that do not report it.
    `in_flight` records are held by members at the moment; `delivered` records are settled although
    they lie beyond the start offset. Only Ottla reports these two.
    """

    topic: str
    partition: int
    start_offset: int | None
    lag: int | None
    in_flight: int | None = None
    delivered: int | None = None


@dataclass(frozen=True, slots=True)
class ShareWindowRun:
    """Offsets from `first` to `last` in one state.

    `state` is Kafka's number: 0 available, 1 acquired, 2 acknowledged, 3 archiving, 4 archived; -1
    is unknown. `member` counts in `ShareWindow.members`, or is -1; `lock_ms` is the time that is
    left of the lock.
    """

    first: int
    last: int
    state: int
    deliveries: int = 0
    member: int = -1
    lock_ms: int = 0

    @property
    def records(self) -> int:
        """How many offsets it has."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class ShareWindow:
    """The records of a share-partition between `start` and `end`, by state and holder.

    `end` is the first offset beyond the window. `max_locks`, `limit` and `lock_ms` are settings of
    the group: the size of the window, deliveries of a record and the time of a lock; 0 if they are
    not known. `stalled_ms` is how long the start has not moved. With `cut` there were more runs
    than were asked for, and the last are missing.
    """

    topic: str
    partition: int
    start: int
    end: int
    log_end: int
    runs: Sequence[ShareWindowRun]
    members: Sequence[str] = ()
    max_locks: int = 0
    limit: int = 0
    lock_ms: int = 0
    stalled_ms: int = 0
    source: Literal["leader", "state topic"] = "leader"
    cut: bool = False


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, its producer at the moment, and the state of its last transaction."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The last transaction of a transactional id, and since when; None if there was none yet."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as a partition knows it; without a start offset it has no transaction open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition and that no coordinator will end."""

    topic: str
    partition: int
    producer: ProducerState


ScramName: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user, and the iterations of its credential for each SCRAM mechanism."""

    name: str
    mechanisms: Mapping[ScramName, int]


AclResource: TypeAlias = Literal[
    "topic", "group", "cluster", "transactional_id", "delegation_token", "user"
]
AclPattern: TypeAlias = Literal["literal", "prefixed"]
AclPermission: TypeAlias = Literal["allow", "deny"]
AclOperation: TypeAlias = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
]
CLUSTER: Final = "kafka-cluster"
_SHORT: Final = {"txn": "transactional_id"}
_WORD: Final = r'((?:[^\s"]|"(?:[^"]|"")*+")++)'
_FOUR_WORDS: Final = re.compile(rf"\s*{_WORD}\s+{_WORD}\s+{_WORD}\s+{_WORD}\s*")
_PART: Final = re.compile(r'"((?:[^"]|"")*+)"|([^"]+)')


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """Lets a principal, such as `User:alice` or `User:*`, do something with a resource, or not.

    The name `*` stands for all resources of the type; with the pattern `prefixed` the name is the
    beginning of names. A host is an address, or `*`.
    """

    resource: AclResource
    name: str
    operation: AclOperation
    principal: str
    permission: AclPermission = "allow"
    pattern: AclPattern = "literal"
    host: str = "*"

    def __post_init__(self) -> None:
        for what, given, known in (
            ("resource", self.resource, get_args(AclResource)),
            ("operation", self.operation, get_args(AclOperation)),
            ("permission", self.permission, get_args(AclPermission)),
            ("pattern", self.pattern, get_args(AclPattern)),
        ):
            if given not in known:
                raise BadArgument(f"{what}: expected one of {', '.join(known)}, got {given!r:.80}")

    def __str__(self) -> str:
        name = "" if self.name == CLUSTER else f":{self.name}"
        star = "*" if self.pattern == "prefixed" else ""
        host = "" if self.host == "*" else f" from {self.host}"
        what = quoted(f"{self.resource}{name}{star}")
        return f"{self.permission} {quoted(self.principal)} {self.operation} {what}{host}"

    @classmethod
    def parse(cls, text: str) -> list[Self]:
        """The ACLs of a text such as `allow alice read,describe topic:orders*`.

        A resource is `topic:NAME`, `group:NAME`, `txn:NAME` or `cluster`; a star at the end of a
        name makes it a prefix, and alone it means all. `User:` may be left out. Names with spaces
        are quoted, `allow "CN=alice,O=My Company" read "group:my group"`; within quotes `""` is a
        quote.
        """
        match = _FOUR_WORDS.fullmatch(text)
        if match is None:
            raise BadArgument(
                f"{text!r:.120} is not an ACL: write allow USER OPERATION RESOURCE, such as "
                'allow alice read,describe topic:orders*; quote names with spaces: "Ann Lee"'
            )
        permission, principal, operations, what = map(_unquoted, match.groups())
        return cls.of(permission, principal, operations.split(","), what)

    @classmethod
    def of(
        cls, permission: str, principal: str, operations: Iterable[str], what: str
    ) -> list[Self]:
        """The same of single words, each as it is: a name may have spaces and quotes."""
        if not principal:
            raise BadArgument("principal: expected a user such as alice, got ''")
        kind, _, name = what.partition(":")
        kind = _SHORT.get(kind, kind)
        if kind == "cluster":
            name = name or CLUSTER
        is_prefix = name.endswith("*") and name != "*"
        return [
            cls(
                kind,  # type: ignore[arg-type]  # checked when it is made
                name.removesuffix("*") if is_prefix else name,
                operation,  # type: ignore[arg-type]
                principal_of(principal),
                permission,  # type: ignore[arg-type]
                "prefixed" if is_prefix else "literal",
            )
            for operation in operations
        ]


def principal_of(text: str) -> str:
    """`User:alice` of `alice`; a colon within a name, as in `CN=urn:a`, is no type's."""
    return text if text.partition(":")[0].isalpha() and ":" in text else f"User:{text}"


def quoted(text: str) -> str:
    """In quotes if it has spaces or quotes."""
    if text and not any(one.isspace() or one == '"' for one in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _unquoted(word: str) -> str:
    return _PART.sub(lambda part: (part[1] or "").replace('""', '"') or part[2] or "", word)


@dataclass(frozen=True, slots=True)
class QuotaDescription:
    """An entity, such as `{"user": "alice"}`, and its quotas; the name None is the default."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]
