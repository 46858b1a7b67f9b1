"""Admin without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.admin.admin import Admin as AsyncAdmin
from ottla.client.admin.share import MOST_RUNS
from ottla.client.admin.transactions import LONGEST_TRANSACTION
from ottla.client.admin.users import DEFAULT_ITERATIONS
from ottla.client.cluster.cluster import API_TIMEOUT
from ottla.client.cluster.connection import REQUEST_TIMEOUT
from ottla.client.security import PLAINTEXT
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.client.admin.quotas import QuotaEntity
    from ottla.client.admin.resets import OffsetMove, ResetTarget
    from ottla.client.admin.types import (
        Acl,
        AclOperation,
        AclPattern,
        AclPermission,
        AclResource,
        ClusterDescription,
        ConfigEntry,
        ConfigKind,
        CreatedTopic,
        GroupDescription,
        GroupListing,
        GroupOffset,
        HangingTransaction,
        ListedOffset,
        LogDirDescription,
        NodeDescription,
        Position,
        ProducerState,
        QuotaDescription,
        Reassignment,
        ScramName,
        ShareGroupDescription,
        ShareGroupOffset,
        ShareWindow,
        TopicDescription,
        TopicListing,
        TransactionDescription,
        TransactionListing,
        UserDescription,
    )
    from ottla.client.cluster.view import TopicPartition
    from ottla.client.errors import KafkaError
    from ottla.client.reader.types import Isolation
    from ottla.client.security import Security


class Admin(Twin[AsyncAdmin]):
    """A context manager; `bootstrap` is "host:port,..." or a sequence of "host:port".

    >>> from ottla.sync import Admin
    >>> with Admin("127.0.0.1:9092") as admin:
    ...     made = admin.create_topic("invoices", partitions=6)
    ...     print(made.partitions, [topic.name for topic in admin.list_topics()])
    6 ['invoices', 'orders']
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str | None = "ottla-admin",
        security: Security = PLAINTEXT,
        request_timeout: float = REQUEST_TIMEOUT,
        api_timeout: float = API_TIMEOUT,
        max_versions: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(
            lambda: AsyncAdmin(
                bootstrap,
                client_id=client_id,
                security=security,
                request_timeout=request_timeout,
                api_timeout=api_timeout,
                max_versions=max_versions,
            )
        )

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._call(lambda: self._async.throttled_seconds)

    def connect(self) -> None:
        """Reach a broker now, in one attempt. Calls do this themselves, and are more patient."""
        self._run(self._async.connect())

    def close(self) -> None:
        """Close all connections."""
        self._run(self._async.close())

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its brokers and its controller."""
        return self._run(self._async.describe_cluster())

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic; -1 leaves a number to the broker's defaults.

        Returns when a broker that is asked for the topic knows it, as far as that can be waited
        for: Kafka's brokers answer before they do.

        >>> from ottla.sync import Admin
        >>> with Admin("127.0.0.1:9092") as admin:
        ...     admin.create_topic("users", 3, configs={"cleanup.policy": "compact"})
        CreatedTopic(name='users', id=..., partitions=3, replication_factor=1)
        """
        return self._run(
            self._async.create_topic(
                name, partitions, replication_factor, configs, validate_only=validate_only
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        self._run(self._async.delete_topic(name))

    def delete_topics(
        self, names: Iterable[str], *, return_errors: bool = False
    ) -> dict[str, KafkaError | None]:
        """Delete several topics; raises `PartialFailure` if some cannot be deleted.

        With `return_errors` they are returned with their errors instead.
        """
        return self._run(self._async.delete_topics(names, return_errors=return_errors))

    def create_partitions(self, topic: str, total: int) -> None:
        """Let a topic grow to this many partitions."""
        self._run(self._async.create_partitions(topic, total))

    def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """All topics by name; internal topics only with `internal`."""
        return self._run(self._async.list_topics(internal=internal))

    def describe_topics(
        self, names: Iterable[str], *, configs: bool = False
    ) -> list[TopicDescription]:
        """Topics with their partitions, in the requested order; settings with `configs`."""
        return self._run(self._async.describe_topics(names, configs=configs))

    def describe_share_groups(self, names: Iterable[str]) -> list[ShareGroupDescription]:
        """Describe share groups with their members, in the requested order."""
        return self._run(self._async.describe_share_groups(names))

    def delete_share_group(self, name: str) -> None:
        """Delete a share group without members, and its state; a group of another type stays."""
        self._run(self._async.delete_share_group(name))

    def delete_share_groups(
        self, names: Iterable[str], *, return_errors: bool = False
    ) -> dict[str, KafkaError | None]:
        """Delete several share groups; raises `PartialFailure` if some cannot be deleted.

        With `return_errors` they are returned with their errors instead.
        """
        return self._run(self._async.delete_share_groups(names, return_errors=return_errors))

    def list_share_group_offsets(self, group: str) -> list[ShareGroupOffset]:
        """Where a share group is in its partitions, by topic and partition."""
        return self._run(self._async.list_share_group_offsets(group))

    def describe_share_windows(
        self, group: str, topics: Iterable[str] | None = None, *, max_runs: int = MOST_RUNS
    ) -> list[ShareWindow]:
        """Which records of a share group are held, by whom and for how long; None: all its topics.

        Only Ottla tells. Partitions from which no member has fetched since their leader started
        have no window. At most 64 partitions are described in a call, with up to 2,000 runs each.
        """
        return self._run(self._async.describe_share_windows(group, topics, max_runs=max_runs))

    def alter_share_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set the start offsets of a share group that has no members at the moment.

        Acknowledgements of later records are dropped. A missing group is created.
        """
        self._run(self._async.alter_share_group_offsets(group, offsets))

    def delete_share_group_offsets(self, group: str, topics: Iterable[str]) -> None:
        """Forget where a share group without members is in these topics.

        It then starts by its setting share.auto.offset.reset.
        """
        self._run(self._async.delete_share_group_offsets(group, topics))

    def plan_share_offset_reset(
        self, group: str, to: ResetTarget, topics: Iterable[str] = ()
    ) -> list[OffsetMove]:
        """As `plan_offset_reset`, for `alter_share_group_offsets`.

        A group that does not exist can be given start offsets, so there is a plan for it too.
        """
        return self._run(self._async.plan_share_offset_reset(group, to, topics))

    def plan_offset_reset(
        self, group: str, to: ResetTarget, topics: Iterable[str] = ()
    ) -> list[OffsetMove]:
        """Where the group would go on in all partitions of these topics.

        Without topics: in the partitions it has offsets for. Give the result to
        `alter_group_offsets` as {(move.topic, move.partition): move.after, ...}.

        >>> from ottla.sync import Admin
        >>> with Admin("127.0.0.1:9092") as admin:
        ...     admin.plan_offset_reset("billing", "earliest", ["orders"])
        [OffsetMove(topic='orders', partition=0, before=None, after=0)]
        """
        return self._run(self._async.plan_offset_reset(group, to, topics))

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all brokers by name, only those in these states or of these types."""
        return self._run(self._async.list_groups(states=states, types=types))

    def describe_groups(self, names: Iterable[str]) -> list[GroupDescription]:
        """Describe classic and consumer groups with their members, in the requested order."""
        return self._run(self._async.describe_groups(names))

    def delete_group(self, name: str) -> None:
        """Delete a group without members, and its offsets."""
        self._run(self._async.delete_group(name))

    def delete_groups(
        self, names: Iterable[str], *, return_errors: bool = False
    ) -> dict[str, KafkaError | None]:
        """Delete several groups; raises `PartialFailure` if some cannot be deleted.

        With `return_errors` they are returned with their errors instead.
        """
        return self._run(self._async.delete_groups(names, return_errors=return_errors))

    def list_group_offsets(self, group: str) -> list[GroupOffset]:
        """The committed offsets of a group, with the ends of the logs and the lag."""
        return self._run(self._async.list_group_offsets(group))

    def list_group_offsets_of(
        self, groups: Iterable[str], *, return_errors: bool = False
    ) -> dict[str, dict[TopicPartition, int] | KafkaError]:
        """The committed offsets of many groups, without the ends of logs; a request a coordinator.

        Raises `PartialFailure` if some cannot be read; with `return_errors` they are returned with
        their errors instead.
        """
        return self._run(self._async.list_group_offsets_of(groups, return_errors=return_errors))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, metadata: str | None = None
    ) -> None:
        """Set the offsets of a group that has no members at the moment; `metadata` is a note.

        >>> from ottla.sync import Admin
        >>> with Admin("127.0.0.1:9092") as admin:
        ...     admin.alter_group_offsets("billing", {("orders", 0): 2})
        ...     [found] = admin.list_group_offsets("billing")
        ...     print(found.offset, found.lag)
        2 1
        """
        self._run(self._async.alter_group_offsets(group, offsets, metadata=metadata))

    def delete_group_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Delete committed offsets of partitions that no member subscribes to."""
        self._run(self._async.delete_group_offsets(group, partitions))

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than: float | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Transactions of all coordinators that match all filters.

        States are Kafka's, such as Ongoing; `longer_than` is for how many seconds it has been open,
        `pattern` a regular expression for the transactional id.
        """
        return self._run(
            self._async.list_transactions(
                states=states, producer_ids=producer_ids, longer_than=longer_than, pattern=pattern
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[TransactionDescription]:
        """Describe transactions with their partitions, in the requested order."""
        return self._run(self._async.describe_transactions(transactional_ids))

    def describe_producers(
        self, of: Iterable[str | tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """The active producers of each partition; a topic name means all its partitions."""
        return self._run(self._async.describe_producers(of))

    def find_hanging_transactions(
        self,
        of: Iterable[str | tuple[str, int]] | None = None,
        *,
        longer_than: float = LONGEST_TRANSACTION,
    ) -> list[HangingTransaction]:
        """The transactions open in these partitions (None: all) that no coordinator will end.

        `longer_than`, in seconds, is to be more than any transaction may take, see
        transaction.max.timeout.ms of the brokers: a younger one may just be on its way.
        """
        return self._run(self._async.find_hanging_transactions(of, longer_than=longer_than))

    def abort_transaction(self, topic: str, partition: int, start_offset: int) -> None:
        """Abort a hanging transaction in the partition where it began at `start_offset`.

        It is aborted in that partition only, without its coordinator: to end one that has a
        coordinator, `fence_producer`.
        """
        self._run(self._async.abort_transaction(topic, partition, start_offset))

    def fence_producer(self, transactional_id: str) -> None:
        """Abort the producer's open transaction and fence it; a new producer may start."""
        self._run(self._async.fence_producer(transactional_id))

    def list_offsets(
        self,
        of: Iterable[str | tuple[str, int]],
        at: Position = "latest",
        *,
        isolation_level: Isolation = "read_uncommitted",
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset at this position in each partition; a topic name means all its partitions.

        The latest position is the end of the log, open transactions included; with
        `read_committed` it is the last stable offset, before the first open transaction.

        >>> from ottla.sync import Admin
        >>> with Admin("127.0.0.1:9092") as admin:
        ...     for partition, found in (admin.list_offsets(["orders"])).items():
        ...         print(partition.topic, partition.partition, found.offset)
        orders 0 3
        """
        return self._run(self._async.list_offsets(of, at, isolation_level=isolation_level))

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Delete the records below these offsets (-1: all); answers with the new log starts."""
        return self._run(self._async.delete_records(before))

    def describe_configs(
        self,
        kind: ConfigKind,
        name: str,
        keys: Iterable[str] | None = None,
        *,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        """The settings of a topic, a broker (by its id) or a group, by name.

        With `documentation` each has the broker's text about it.
        """
        return self._run(
            self._async.describe_configs(kind, name, keys, documentation=documentation)
        )

    def alter_configs(
        self,
        kind: ConfigKind,
        name: str,
        configs: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set these keys and leave the others alone; None takes a key back to its default.

        >>> from ottla.sync import Admin
        >>> with Admin("127.0.0.1:9092") as admin:
        ...     admin.alter_configs("topic", "orders", {"retention.ms": "86400000"})
        ...     [found] = admin.describe_configs("topic", "orders", ["retention.ms"])
        ...     print(found.value, found.is_default)
        86400000 False
        """
        self._run(self._async.alter_configs(kind, name, configs, validate_only=validate_only))

    def create_user(
        self,
        name: str,
        password: str,
        *,
        mechanism: ScramName = "SCRAM-SHA-512",
        iterations: int = DEFAULT_ITERATIONS,
    ) -> bool:
        """Create a user, or give it another password; answers whether the user is new.

        After it only this password works: it is set for `mechanism` and for every other one that
        the user has.
        """
        return self._run(
            self._async.create_user(name, password, mechanism=mechanism, iterations=iterations)
        )

    def describe_users(self, names: Iterable[str] | None = None) -> list[UserDescription]:
        """These users, or all of them, by name; passwords cannot be read."""
        return self._run(self._async.describe_users(names))

    def delete_user(self, name: str, *, mechanism: ScramName | None = None) -> None:
        """Delete a user, or only its credential for one mechanism. Its ACLs stay."""
        self._run(self._async.delete_user(name, mechanism=mechanism))

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create these ACLs; those that exist stay as they are."""
        self._run(self._async.create_acls(acls))

    def describe_acls(
        self,
        *,
        resource: AclResource | None = None,
        name: str | None = None,
        pattern: AclPattern | None = None,
        covering: bool = False,
        principal: str | None = None,
        host: str | None = None,
        operation: AclOperation | None = None,
        permission: AclPermission | None = None,
    ) -> list[Acl]:
        """The ACLs with these values; what is left out may be anything.

        With `covering`, those that apply to a resource of this name: literal, `*` and prefixed.
        """
        return self._run(
            self._async.describe_acls(
                resource=resource,
                name=name,
                pattern=pattern,
                covering=covering,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
        )

    def delete_acls(
        self,
        *,
        resource: AclResource | None = None,
        name: str | None = None,
        pattern: AclPattern | None = None,
        covering: bool = False,
        principal: str | None = None,
        host: str | None = None,
        operation: AclOperation | None = None,
        permission: AclPermission | None = None,
    ) -> list[Acl]:
        """Delete the ACLs that `describe_acls` finds with the same arguments; returns them."""
        return self._run(
            self._async.delete_acls(
                resource=resource,
                name=name,
                pattern=pattern,
                covering=covering,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
        )

    def alter_quotas(
        self,
        entity: Mapping[QuotaEntity, str | None],
        values: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set these quotas of an entity and leave the others alone; None takes a quota away.

        An entity is `{"user": "alice"}`, `{"client-id": "app"}`, both at once, or
        `{"ip": "10.0.0.1"}`; the name None stands for all that have no quota of their own.
        """
        self._run(self._async.alter_quotas(entity, values, validate_only=validate_only))

    def describe_quotas(
        self, entity: Mapping[QuotaEntity, str | None] | None = None, *, strict: bool = False
    ) -> list[QuotaDescription]:
        """The quotas of entities with these parts; None: all quotas.

        With `strict`, an entity has no other parts than these.
        """
        return self._run(self._async.describe_quotas(entity, strict=strict))

    def describe_nodes(self) -> list[NodeDescription]:
        """All registered nodes by id, those that are down as well.

        Apache Kafka does not tell how many partitions a node leads, nor its load.

        >>> from ottla.sync import Admin
        >>> with Admin("127.0.0.1:9092") as admin:
        ...     [(node.broker.id, node.state.value) for node in admin.describe_nodes()]
        [(1, 'active')]
        """
        return self._run(self._async.describe_nodes())

    def forget_node(self, node: int) -> None:
        """Take a node out of the cluster that is down for good; other nodes lead its partitions.

        Raises `KafkaError` if there is no such node, or if it is up.
        """
        self._run(self._async.forget_node(node))

    def registry_url(self) -> str | None:
        """Where the broker serves a schema registry; None if it does not, or does not say."""
        return self._run(self._async.registry_url())

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> list[TopicPartition]:
        """Let partitions be led by their preferred nodes, the first of their replicas.

        With `unclean`, give a leader to those that have none: any node that is up. None stands for
        all partitions. Returns those that have another leader now; raises `PartialFailure` if some
        cannot have one.
        """
        return self._run(self._async.elect_leaders(partitions, unclean=unclean))

    def reassign_partitions(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Replace the replicas of partitions: the nodes that may lead them, the preferred first.

        The leader moves if it is not among them. None cancels a reassignment that is under way.
        Raises `PartialFailure` if some are refused.

        >>> from ottla.sync import Admin
        >>> with Admin("127.0.0.1:9092") as admin:
        ...     admin.reassign_partitions({("orders", 0): [1]})
        """
        self._run(self._async.reassign_partitions(replicas))

    def list_reassignments(self) -> dict[TopicPartition, Reassignment]:
        """The reassignments that are under way; Ottla carries them out at once and has none."""
        return self._run(self._async.list_reassignments())

    def describe_log_dirs(self) -> list[LogDirDescription]:
        """The directories of all live brokers, with free space and the size of each partition.

        No log is opened for it. A partition that is being moved to another directory counts there,
        too.

        >>> from ottla.sync import Admin
        >>> with Admin("127.0.0.1:9092") as admin:
        ...     [found] = admin.describe_log_dirs()
        ...     print(found.sizes["orders", 0] > 0, found.error)
        True None
        """
        return self._run(self._async.describe_log_dirs())
