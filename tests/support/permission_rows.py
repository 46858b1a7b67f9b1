"""A request for each row of the table of permissions, the rights that are enough for it, and the
codes that answer it with less.

`enough` has sets of rights each of which is enough. `refused` has sets of rights that are not, with
the codes of the answer by their place in it; nothing else in the answer has a code.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.metadata.security.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from ottla.wire.messages import message
from ottla.wire.schema import (
    API_NAMES,
    create_acls,
    delete_acls,
    delete_groups,
    describe_acls,
    describe_cluster,
    describe_groups,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    sync_group,
    txn_offset_commit,
    unregister_broker,
)
from ottla.wire.schema import add_offsets_to_txn as add_offsets
from ottla.wire.schema import add_partitions_to_txn as add_partitions
from ottla.wire.schema import alter_client_quotas as alter_quotas
from ottla.wire.schema import alter_configs as alter
from ottla.wire.schema import alter_partition_reassignments as reassign
from ottla.wire.schema import alter_share_group_offsets as alter_share
from ottla.wire.schema import alter_user_scram_credentials as alter_users
from ottla.wire.schema import consumer_group_describe as consumer_describe
from ottla.wire.schema import consumer_group_heartbeat as consumer_heartbeat
from ottla.wire.schema import create_partitions as grow
from ottla.wire.schema import create_topics as create
from ottla.wire.schema import delete_records as trim
from ottla.wire.schema import delete_share_group_offsets as delete_share
from ottla.wire.schema import delete_share_group_state as delete_state
from ottla.wire.schema import delete_topics as delete
from ottla.wire.schema import describe_client_quotas as describe_quotas
from ottla.wire.schema import describe_configs as configs
from ottla.wire.schema import describe_log_dirs as log_dirs
from ottla.wire.schema import describe_producers as producers
from ottla.wire.schema import describe_share_group_offsets as describe_share
from ottla.wire.schema import describe_topic_partitions as topic_partitions
from ottla.wire.schema import describe_transactions as transactions
from ottla.wire.schema import describe_user_scram_credentials as describe_users
from ottla.wire.schema import elect_leaders as elect
from ottla.wire.schema import incremental_alter_configs as incremental
from ottla.wire.schema import initialize_share_group_state as initialize_state
from ottla.wire.schema import offset_for_leader_epoch as epochs
from ottla.wire.schema import read_share_group_state as read_state
from ottla.wire.schema import read_share_group_state_summary as state_summary
from ottla.wire.schema import share_group_heartbeat as share_heartbeat
from ottla.wire.schema import write_share_group_state as write_state
from ottla.wire.schema import write_txn_markers as markers
from tests.support.raw_client import API_KEYS, batch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.raw_client import RawClient
    from tests.support.rights import RightsPlace

TOPIC, GROUP, TXN = "orders", "readers", "payments"
CONSUMER_GROUP, SHARE_GROUP = "consumers", "sharers"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
RECORDS = bytes(batch(b"v"))
IN_TRANSACTION = bytes(
    batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
)
_numbers = itertools.count()
PATIENCE = 30.0

REFUSALS = frozenset({29, 30, 31, 53, 65})


def fresh_name() -> str:
    return f"fresh-{next(_numbers)}"


@dataclass
class Env:
    """What requests are about."""

    place: RightsPlace
    topic_id: bytes
    user: str = "alice"
    fresh: str = field(default_factory=fresh_name)


@dataclass(frozen=True)
class Row:
    api: str
    version: int
    body: Callable[[Env], Any]
    enough: Sequence[Sequence[str]]
    refused: Sequence[tuple[Sequence[str], dict[str, int]]]
    case: str = ""

    @property
    def key(self) -> int:
        return API_KEYS[self.api]

    def __str__(self) -> str:
        return f"{API_NAMES[self.key]}-v{self.version}{'-' if self.case else ''}{self.case}"


def codes(answer: Any) -> dict[str, set[int]]:
    """The error codes of an answer by their place; 0 where nothing else is."""
    found: dict[str, set[int]] = {}
    for path, code in _codes(answer, ""):
        found.setdefault(path, set()).add(code)
    return found


def _codes(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if hasattr(value, "_fields"):
        for name in value._fields:
            yield from _codes(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _codes(item, path)
    elif path.endswith("error_code") and value:
        yield path, value


def one(place: str, code: int) -> dict[str, int]:
    return {place: code}


def _read_group(api: str, version: int, body: Callable[[Env], Any]) -> Row:
    refused = one("error_code", 30)
    return Row(api, version, body, [["read group"]], [([], refused), (["describe group"], refused)])


def _node_only(api: str, version: int, body: Callable[[Env], Any], place: str) -> Row:
    refused = one(place, 31)
    return Row(
        api,
        version,
        body,
        [["cluster_action cluster"]],
        [([], refused), (["alter cluster"], refused)],
    )


def _batch_of(records: bytes, name: str | None = None) -> Callable[[Env], Any]:
    data = [produce.PartitionProduceData(0, records)]
    topics = [produce.TopicProduceData(TOPIC, partition_data=data)]
    return lambda _: produce.ProduceRequest(name, -1, 1000, topics)


def _produce_by_id(env: Env) -> Any:
    data = [produce.PartitionProduceData(0, RECORDS)]
    topics = [produce.TopicProduceData(topic_id=env.topic_id, partition_data=data)]
    return produce.ProduceRequest(None, -1, 1000, topics)


def _fetch(replica: int = -1) -> Callable[[Env], Any]:
    topics = [fetch.FetchTopic(TOPIC, partitions=[fetch.FetchPartition(0, -1, 0, -1, -1, 1000)])]
    return lambda _: fetch.FetchRequest(
        replica_id=replica, max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=topics
    )


def _fetch_by_id(env: Env) -> Any:
    partitions = [fetch.FetchPartition(0, -1, 0, -1, -1, 1000)]
    topics = [fetch.FetchTopic(topic_id=env.topic_id, partitions=partitions)]
    return fetch.FetchRequest(max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=topics)


def _metadata(name: str | None = None, *, create: bool = False) -> Callable[[Env], Any]:
    return lambda env: metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=name or env.fresh)], create
    )


def _commit(_: Env) -> Any:
    partitions = [offset_commit.OffsetCommitRequestPartition(0, 1)]
    topics = [offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=partitions)]
    return offset_commit.OffsetCommitRequest(GROUP, topics=topics)


def _delete_offsets(env: Env) -> Any:
    """Of a group that has some: it goes with the last one."""
    env.place.ask("root", "offset_commit", 8, _commit(env))
    partitions = [offset_delete.OffsetDeleteRequestPartition(0)]
    topics = [offset_delete.OffsetDeleteRequestTopic(TOPIC, partitions)]
    return offset_delete.OffsetDeleteRequest(GROUP, topics)


def _fetch_offsets(_: Env) -> Any:
    topics = [offset_fetch.OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])]
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=topics)]
    )


def _fetch_offsets_7(_: Env) -> Any:
    topics = [offset_fetch.OffsetFetchRequestTopic(TOPIC, [0])]
    return offset_fetch.OffsetFetchRequest(GROUP, topics)


def _coordinator(kind: int, key: str) -> Callable[[Env], Any]:
    return lambda env: find_coordinator.FindCoordinatorRequest(
        key_type=kind, coordinator_keys=[key.format(topic_id=_uuid(env.topic_id))]
    )


def _uuid(topic_id: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def _join(_: Env) -> Any:
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    return join_group.JoinGroupRequest(GROUP, 6000, 6000, "", None, "consumer", protocols)


def _create(env: Env) -> Any:
    return create.CreateTopicsRequest([create.CreatableTopic(env.fresh, 1, 1)])


def _delete_name(name: str) -> Callable[[Env], Any]:
    return lambda _: delete.DeleteTopicsRequest(
        topics=[delete.DeleteTopicState(name)], timeout_ms=5000
    )


def _delete_id(env: Env) -> Any:
    return delete.DeleteTopicsRequest(
        topics=[delete.DeleteTopicState(None, env.topic_id)], timeout_ms=5000
    )


def _delete_made(env: Env) -> Any:
    env.place.create_topic(env.fresh)
    return delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(env.fresh)], timeout_ms=5000)


def _delete_made_id(env: Env) -> Any:
    env.place.create_topic(env.fresh)
    topic_id = env.place.client("root").topic(env.fresh).topic_id
    return delete.DeleteTopicsRequest(
        topics=[delete.DeleteTopicState(None, topic_id)], timeout_ms=5000
    )


def _describe_configs(kind: int, name: str) -> Callable[[Env], Any]:
    resource = configs.DescribeConfigsResource(kind, name, None)
    return lambda _: configs.DescribeConfigsRequest([resource])


def _alter(kind: int, name: str, key: str, value: str) -> Callable[[Env], Any]:
    changed = [alter.AlterableConfig(key, value)]
    return lambda _: alter.AlterConfigsRequest(
        [alter.AlterConfigsResource(kind, name, changed)], validate_only=True
    )


def _incremental(kind: int, name: str, key: str, value: str) -> Callable[[Env], Any]:
    def body(env: Env) -> Any:
        changed = [incremental.AlterableConfig(key, 0, value.format(fresh=env.fresh))]
        return incremental.IncrementalAlterConfigsRequest(
            [incremental.AlterConfigsResource(kind, name, changed)], validate_only=True
        )

    return body


def _join_transaction(_: Env) -> Any:
    topics = [add_partitions.AddPartitionsToTxnTopic(TOPIC, [0])]
    return add_partitions.AddPartitionsToTxnRequest(TXN, 1, 0, topics)


def _join_transactions(_: Env) -> Any:
    topics = [add_partitions.AddPartitionsToTxnTopic(TOPIC, [0])]
    return add_partitions.AddPartitionsToTxnRequest(
        transactions=[add_partitions.AddPartitionsToTxnTransaction(TXN, 1, 0, False, topics)]
    )


def _commit_in_transaction(_: Env) -> Any:
    partitions = [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)]
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(TOPIC, partitions)]
    return txn_offset_commit.TxnOffsetCommitRequest(TXN, GROUP, 1, 0, topics=topics)


def _share_fetch(env: Env) -> Any:
    topics = [share_fetch.FetchTopic(env.topic_id, [share_fetch.FetchPartition(0)])]
    return share_fetch.ShareFetchRequest(
        SHARE_GROUP, _member(env), 0, 0, 0, 1000, 10, 10, topics=topics
    )


def _member(env: Env) -> str:
    """A share session belongs to its principal."""
    return f"{env.user:A<22}"


def _share_acknowledge(env: Env) -> Any:
    """In a session that is opened for it."""
    env.place.ask(env.user, "share_fetch", 1, _share_fetch(env)._replace(topics=[]))
    batches = [share_acknowledge.AcknowledgementBatch(0, 0, [1])]
    partitions = [share_acknowledge.AcknowledgePartition(0, batches)]
    topics = [share_acknowledge.AcknowledgeTopic(env.topic_id, partitions)]
    return share_acknowledge.ShareAcknowledgeRequest(SHARE_GROUP, _member(env), 1, topics=topics)


def _state(module: Any, data: str, partition: Any) -> Callable[[Env], Any]:
    request = message(_key_of(module), request=True).root
    return lambda env: request(SHARE_GROUP, [getattr(module, data)(env.topic_id, [partition])])


def _key_of(module: Any) -> int:
    return API_KEYS[module.__name__.rpartition(".")[2]]


def _share_offsets(*, from_leader: bool) -> Callable[[Env], Any]:
    topics = [describe_share.DescribeShareGroupOffsetsRequestTopic(TOPIC, [0])]
    groups = [describe_share.DescribeShareGroupOffsetsRequestGroup(SHARE_GROUP, topics)]
    return lambda _: describe_share.DescribeShareGroupOffsetsRequest(groups, from_leader)


def _alter_share(_: Env) -> Any:
    partitions = [alter_share.AlterShareGroupOffsetsRequestPartition(0, 0)]
    topics = [alter_share.AlterShareGroupOffsetsRequestTopic(TOPIC, partitions)]
    return alter_share.AlterShareGroupOffsetsRequest("idle-sharers", topics)


def _delete_share(_: Env) -> Any:
    topics = [delete_share.DeleteShareGroupOffsetsRequestTopic(TOPIC)]
    return delete_share.DeleteShareGroupOffsetsRequest("idle-sharers", topics)


def _consumer_heartbeat(_: Env) -> Any:
    return consumer_heartbeat.ConsumerGroupHeartbeatRequest(
        GROUP, MEMBER, 5, rebalance_timeout_ms=1000, subscribed_topic_names=[TOPIC]
    )


def _share_heartbeat(_: Env) -> Any:
    return share_heartbeat.ShareGroupHeartbeatRequest(
        "other-sharers", MEMBER, 5, subscribed_topic_names=[TOPIC]
    )


def _consumer_describe(env: Env) -> Any:
    """Of a group whose member has just been heard of."""
    join_consumers(env.place)
    return consumer_describe.ConsumerGroupDescribeRequest([CONSUMER_GROUP])


def join_consumers(place: RightsPlace) -> None:
    join = consumer_heartbeat.ConsumerGroupHeartbeatRequest(
        CONSUMER_GROUP, MEMBER, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC]
    )
    _until_settled(lambda: place.ask("root", "consumer_group_heartbeat", 1, join))


def _share_describe(env: Env) -> Any:
    """Of a group whose member has just been heard of."""
    join_shares(env.place)
    return share_group_describe.ShareGroupDescribeRequest([SHARE_GROUP])


def join_shares(place: RightsPlace) -> None:
    """Until the member is assigned its partition."""
    join = share_heartbeat.ShareGroupHeartbeatRequest(
        SHARE_GROUP, MEMBER, 0, subscribed_topic_names=[TOPIC]
    )
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = place.ask("root", "share_group_heartbeat", 1, join)
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def _users(_: Env) -> Any:
    return alter_users.AlterUserScramCredentialsRequest(
        [alter_users.ScramCredentialDeletion("nobody", 1)]
    )


def _quotas(_: Env) -> Any:
    entity = [alter_quotas.RequestEntityData("user", "somebody")]
    ops = [alter_quotas.OpData("producer_byte_rate", 1.0)]
    return alter_quotas.AlterClientQuotasRequest(
        [alter_quotas.RequestEntryData(entity, ops)], validate_only=True
    )


SOME_ACL = create_acls.AclCreation(2, "never-asked-for", 3, "User:bob", "*", 8, 3)
NO_ACL = delete_acls.DeleteAclsFilter(2, "no-acl-names-it", 3, None, None, 1, 1)
PRODUCED = "responses.partition_responses.error_code"
FETCHED = "responses.partitions.error_code"
PARTITION = "topics.partitions.error_code"
JOINED = "results_by_topic_v3_and_below.results_by_partition.partition_error_code"
RESULT = "results.error_code"
DLQ = "errors.deadletterqueue.topic.name"

ROWS: list[Row] = [
    Row(
        "produce",
        11,
        _batch_of(RECORDS),
        [["write topic"]],
        [([], one(PRODUCED, 29)), (["read topic"], one(PRODUCED, 29))],
    ),
    Row("produce", 13, _produce_by_id, [["write topic"]], [([], one(PRODUCED, 29))]),
    Row(
        "produce",
        11,
        _batch_of(IN_TRANSACTION, TXN),
        [["write topic", "write txn"]],
        [
            ([], one(PRODUCED, 53)),
            (["write topic"], one(PRODUCED, 53)),
            (["write txn"], one(PRODUCED, 29)),
        ],
        "transactional",
    ),
    Row(
        "produce",
        11,
        _batch_of(IN_TRANSACTION),
        [],
        [(["write topic", "write txn"], one(PRODUCED, 53))],
        "transactional-without-id",
    ),
    Row(
        "fetch",
        12,
        _fetch(),
        [["read topic"]],
        [([], one(FETCHED, 29)), (["write topic"], one(FETCHED, 29))],
    ),
    Row("fetch", 13, _fetch_by_id, [["read topic"]], [([], one(FETCHED, 29))]),
    Row(
        "fetch",
        12,
        _fetch(5),
        [["cluster_action cluster"]],
        [([], one(FETCHED, 29)), (["read topic"], one(FETCHED, 29))],
        "replica",
    ),
    Row(
        "list_offsets",
        7,
        lambda _: list_offsets.ListOffsetsRequest(
            -1,
            0,
            [list_offsets.ListOffsetsTopic(TOPIC, [list_offsets.ListOffsetsPartition(0, -1, -1)])],
        ),
        [["describe topic"], ["read topic"], ["write topic"], ["delete topic"], ["alter topic"]],
        [([], one(PARTITION, 29)), (["alter_configs topic"], one(PARTITION, 29))],
    ),
    Row(
        "metadata",
        12,
        _metadata(TOPIC),
        [["describe topic"]],
        [([], one("topics.error_code", 29))],
        "named",
    ),
    Row(
        "metadata",
        12,
        _metadata(create=True),
        [["describe fresh", "create cluster"], ["describe fresh", "create fresh"]],
        [
            (["create cluster"], one("topics.error_code", 29)),
            (["describe fresh"], one("topics.error_code", 29)),
        ],
        "creating",
    ),
    Row(
        "metadata",
        12,
        lambda env: metadata.MetadataRequest([metadata.MetadataRequestTopic(env.topic_id, None)]),
        [["describe topic"]],
        [([], one("topics.error_code", 29))],
        "by-id",
    ),
    Row(
        "offset_commit",
        8,
        _commit,
        [["read group", "read topic"]],
        [
            ([], one(PARTITION, 30)),
            (["read topic"], one(PARTITION, 30)),
            (["read group"], one(PARTITION, 29)),
        ],
    ),
    Row(
        "offset_fetch",
        8,
        _fetch_offsets,
        [["describe group", "describe topic"]],
        [
            ([], one("groups.error_code", 30)),
            (["describe group"], one("groups.topics.partitions.error_code", 29)),
        ],
    ),
    Row(
        "offset_fetch",
        7,
        _fetch_offsets_7,
        [["describe group", "describe topic"]],
        [
            ([], one("error_code", 30)),
            (["describe group"], one(PARTITION, 29)),
        ],
    ),
    Row(
        "find_coordinator",
        4,
        _coordinator(0, GROUP),
        [["describe group"]],
        [([], one("coordinators.error_code", 30))],
        "group",
    ),
    Row(
        "find_coordinator",
        4,
        _coordinator(1, TXN),
        [["describe txn"]],
        [([], one("coordinators.error_code", 53))],
        "transaction",
    ),
    Row(
        "find_coordinator",
        6,
        _coordinator(2, SHARE_GROUP + ":{topic_id}:0"),
        [["cluster_action cluster"]],
        [([], one("coordinators.error_code", 31))],
        "share",
    ),
    _read_group("join_group", 5, _join),
    _read_group("heartbeat", 4, lambda _: heartbeat.HeartbeatRequest(GROUP, 1, "m")),
    _read_group(
        "leave_group",
        5,
        lambda _: leave_group.LeaveGroupRequest(GROUP, members=[leave_group.MemberIdentity("m")]),
    ),
    _read_group(
        "sync_group",
        5,
        lambda _: sync_group.SyncGroupRequest(GROUP, 1, "m", None, "consumer", "range"),
    ),
    Row(
        "describe_groups",
        5,
        lambda _: describe_groups.DescribeGroupsRequest([GROUP]),
        [["describe group"]],
        [([], one("groups.error_code", 30))],
    ),
    Row(
        "list_groups",
        4,
        lambda _: list_groups.ListGroupsRequest(),
        [[], ["describe group"], ["describe cluster"]],
        [],
    ),
    Row(
        "create_topics",
        7,
        _create,
        [["create cluster", "describe_configs fresh"], ["create fresh", "describe_configs fresh"]],
        [
            ([], one("topics.error_code", 29)),
            (["create cluster"], one("topics.topic_config_error_code", 29)),
        ],
    ),
    Row(
        "delete_topics",
        6,
        _delete_name(TOPIC),
        [],
        [
            ([], one("responses.error_code", 29)),
            (["describe topic"], one("responses.error_code", 29)),
        ],
    ),
    Row("delete_topics", 6, _delete_made, [["delete fresh"]], [], "made"),
    Row(
        "delete_topics",
        6,
        _delete_made_id,
        [["delete fresh"], ["describe fresh", "delete fresh"]],
        [],
        "made-by-id",
    ),
    Row(
        "delete_topics",
        6,
        _delete_name("missing"),
        [],
        [
            ([], one("responses.error_code", 29)),
            (["describe topic:missing"], one("responses.error_code", 3)),
        ],
        "missing",
    ),
    Row(
        "delete_topics",
        6,
        _delete_id,
        [],
        [
            ([], one("responses.error_code", 29)),
            (["describe topic"], one("responses.error_code", 29)),
        ],
        "by-id",
    ),
    Row(
        "delete_records",
        2,
        lambda _: trim.DeleteRecordsRequest(
            [trim.DeleteRecordsTopic(TOPIC, [trim.DeleteRecordsPartition(0, 0)])]
        ),
        [["delete topic"]],
        [([], one(PARTITION, 29)), (["write topic"], one(PARTITION, 29))],
    ),
    Row(
        "init_producer_id",
        4,
        lambda _: init_producer_id.InitProducerIdRequest(TXN, 1000),
        [["write txn"]],
        [([], one("error_code", 53)), (["idempotent_write cluster"], one("error_code", 53))],
        "transactional",
    ),
    Row(
        "init_producer_id",
        4,
        lambda _: init_producer_id.InitProducerIdRequest(None, 1000),
        [["idempotent_write cluster"], ["write topic"], ["write topic:other*"]],
        [([], one("error_code", 31)), (["read topic"], one("error_code", 31))],
        "idempotent",
    ),
    Row(
        "offset_for_leader_epoch",
        4,
        lambda _: epochs.OffsetForLeaderEpochRequest(
            -1, [epochs.OffsetForLeaderTopic(TOPIC, [epochs.OffsetForLeaderPartition(0, -1, 0)])]
        ),
        [["describe topic"], ["cluster_action cluster"]],
        [([], one(PARTITION, 29))],
    ),
    Row(
        "add_partitions_to_txn",
        3,
        _join_transaction,
        [["write txn", "write topic"]],
        [
            ([], one(JOINED, 53)),
            (["write topic"], one(JOINED, 53)),
            (["write txn"], one(JOINED, 29)),
        ],
    ),
    _node_only("add_partitions_to_txn", 4, _join_transactions, "error_code"),
    Row(
        "add_offsets_to_txn",
        3,
        lambda _: add_offsets.AddOffsetsToTxnRequest(TXN, 1, 0, GROUP),
        [["write txn", "read group"]],
        [([], one("error_code", 53)), (["write txn"], one("error_code", 30))],
    ),
    Row(
        "end_txn",
        3,
        lambda _: end_txn.EndTxnRequest(TXN, 1, 0, False),
        [["write txn"]],
        [([], one("error_code", 53))],
    ),
    Row(
        "write_txn_markers",
        1,
        lambda _: markers.WriteTxnMarkersRequest(
            [markers.WritableTxnMarker(1, 0, False, [markers.WritableTxnMarkerTopic("other", [0])])]
        ),
        [["alter cluster"], ["cluster_action cluster"]],
        [([], one("markers.topics.partitions.error_code", 31))],
    ),
    Row(
        "txn_offset_commit",
        3,
        _commit_in_transaction,
        [["write txn", "read group", "read topic"]],
        [
            ([], one(PARTITION, 53)),
            (["write txn"], one(PARTITION, 30)),
            (["write txn", "read group"], one(PARTITION, 29)),
        ],
    ),
    Row(
        "describe_acls",
        3,
        lambda _: describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        [["describe cluster"]],
        [([], one("error_code", 31))],
    ),
    Row(
        "create_acls",
        3,
        lambda _: create_acls.CreateAclsRequest([SOME_ACL] * 2),
        [["alter cluster"]],
        [([], one(RESULT, 31)), (["describe cluster"], one(RESULT, 31))],
    ),
    Row(
        "delete_acls",
        3,
        lambda _: delete_acls.DeleteAclsRequest([NO_ACL] * 2),
        [["alter cluster"]],
        [([], one("filter_results.error_code", 31))],
    ),
    *(
        Row(
            "describe_configs",
            4,
            _describe_configs(kind, name),
            [[f"describe_configs {right}"], [f"alter_configs {right}"]],
            [([], one(RESULT, code)), ([f"describe {right}"], one(RESULT, code))],
            right,
        )
        for kind, name, right, code in (
            (2, TOPIC, "topic", 29),
            (32, GROUP, "group", 30),
            (4, "1", "cluster", 31),
        )
    ),
    *(
        Row(
            api,
            version,
            body(kind, name, key, value),
            [[f"alter_configs {right}"]],
            [
                ([], one("responses.error_code", code)),
                ([f"describe_configs {right}"], one("responses.error_code", code)),
            ],
            right,
        )
        for api, version, body in (
            ("alter_configs", 2, _alter),
            ("incremental_alter_configs", 1, _incremental),
        )
        for kind, name, key, value, right, code in (
            (2, TOPIC, "retention.ms", "1000", "topic", 29),
            (32, GROUP, "share.session.timeout.ms", "50000", "group", 30),
            (4, "1", "log.cleaner.backoff.ms", "1000", "cluster", 31),
        )
    ),
    *(
        Row(
            api,
            version,
            body(32, GROUP, DLQ, "dlq.letters"),
            [
                ["alter_configs group", "write topic:dlq.letters", "create topic:dlq.letters"],
                ["alter_configs group", "write topic:dlq.letters", "create cluster"],
            ],
            [
                (["alter_configs group"], one("responses.error_code", 29)),
                (["alter_configs group", "create cluster"], one("responses.error_code", 29)),
                (
                    ["alter_configs group", "write topic:dlq.letters"],
                    one("responses.error_code", 29),
                ),
            ],
            "dead-letters",
        )
        for api, version, body in (
            ("alter_configs", 2, _alter),
            ("incremental_alter_configs", 1, _incremental),
        )
    ),
    Row(
        "describe_log_dirs",
        4,
        lambda _: log_dirs.DescribeLogDirsRequest(None),
        [["describe cluster"]],
        [([], one("error_code", 31))],
    ),
    Row(
        "create_partitions",
        3,
        lambda _: grow.CreatePartitionsRequest(
            [grow.CreatePartitionsTopic(TOPIC, 5, None)], validate_only=True
        ),
        [["alter topic"]],
        [([], one(RESULT, 29)), (["create topic"], one(RESULT, 29))],
    ),
    Row(
        "delete_groups",
        2,
        lambda _: delete_groups.DeleteGroupsRequest(["no-such-group"]),
        [["delete group:no-such-group"]],
        [([], one(RESULT, 30))],
    ),
    Row(
        "elect_leaders",
        1,
        lambda _: elect.ElectLeadersRequest(1, [elect.TopicPartitions(TOPIC, [0])]),
        [["alter cluster"]],
        [
            (
                ["describe cluster"],
                {"error_code": 31, "replica_election_results.partition_result.error_code": 31},
            )
        ],
    ),
    Row(
        "alter_partition_reassignments",
        0,
        lambda _: reassign.AlterPartitionReassignmentsRequest(
            topics=[reassign.ReassignableTopic(TOPIC, [reassign.ReassignablePartition(0, [1])])]
        ),
        [["alter cluster"]],
        [
            (
                ["describe cluster"],
                {"error_code": 31, "responses.partitions.error_code": 31},
            )
        ],
    ),
    Row(
        "list_partition_reassignments",
        0,
        lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        [["describe cluster"]],
        [([], one("error_code", 31))],
    ),
    Row(
        "offset_delete",
        0,
        _delete_offsets,
        [["delete group", "read topic"]],
        [
            ([], one("error_code", 30)),
            (["delete group"], one(PARTITION, 29)),
        ],
    ),
    Row(
        "describe_client_quotas",
        1,
        lambda _: describe_quotas.DescribeClientQuotasRequest(),
        [["describe_configs cluster"]],
        [([], one("error_code", 31))],
    ),
    Row(
        "alter_client_quotas",
        1,
        _quotas,
        [["alter_configs cluster"]],
        [([], one("entries.error_code", 31))],
    ),
    Row(
        "describe_user_scram_credentials",
        0,
        lambda _: describe_users.DescribeUserScramCredentialsRequest(None),
        [["describe cluster"]],
        [([], one("error_code", 31))],
    ),
    Row(
        "alter_user_scram_credentials",
        0,
        _users,
        [["alter cluster"]],
        [([], one(RESULT, 31))],
    ),
    Row(
        "describe_cluster",
        1,
        lambda _: describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=True
        ),
        [[], ["describe cluster"]],
        [],
    ),
    Row(
        "describe_cluster",
        2,
        lambda _: describe_cluster.DescribeClusterRequest(with_state=True),
        [["describe cluster"]],
        [([], one("error_code", 31))],
        "with_state",
    ),
    Row(
        "describe_producers",
        0,
        lambda _: producers.DescribeProducersRequest([producers.TopicRequest(TOPIC, [0])]),
        [["read topic"]],
        [([], one(PARTITION, 29)), (["write topic"], one(PARTITION, 29))],
    ),
    Row(
        "unregister_broker",
        0,
        lambda _: unregister_broker.UnregisterBrokerRequest(99),
        [["alter cluster"]],
        [(["describe cluster"], one("error_code", 31))],
    ),
    Row(
        "describe_transactions",
        0,
        lambda _: transactions.DescribeTransactionsRequest([TXN]),
        [["describe txn"]],
        [([], one("transaction_states.error_code", 53))],
    ),
    Row(
        "list_transactions",
        1,
        lambda _: list_transactions.ListTransactionsRequest(),
        [[], ["describe txn"]],
        [],
    ),
    Row(
        "consumer_group_heartbeat",
        1,
        _consumer_heartbeat,
        [["read group", "describe topic"]],
        [([], one("error_code", 30)), (["read group"], one("error_code", 29))],
    ),
    Row(
        "consumer_group_describe",
        1,
        _consumer_describe,
        [["describe group:" + CONSUMER_GROUP, "describe topic"]],
        [
            ([], one("groups.error_code", 30)),
            (["describe topic"], one("groups.error_code", 30)),
            (["describe group:" + CONSUMER_GROUP], one("groups.error_code", 29)),
        ],
    ),
    Row(
        "list_config_resources",
        1,
        lambda _: list_config_resources.ListConfigResourcesRequest(),
        [["describe_configs cluster"]],
        [([], one("error_code", 31))],
    ),
    Row(
        "describe_topic_partitions",
        0,
        lambda _: topic_partitions.DescribeTopicPartitionsRequest(
            [topic_partitions.TopicRequest(TOPIC)]
        ),
        [["describe topic"]],
        [([], one("topics.error_code", 29))],
    ),
    Row(
        "share_group_heartbeat",
        1,
        _share_heartbeat,
        [["read group:other-sharers", "describe topic"]],
        [([], one("error_code", 30)), (["read group:other-sharers"], one("error_code", 29))],
    ),
    Row(
        "share_group_describe",
        1,
        _share_describe,
        [["describe group:" + SHARE_GROUP, "describe topic"]],
        [
            ([], one("groups.error_code", 30)),
            (["describe group:" + SHARE_GROUP], one("groups.error_code", 29)),
        ],
    ),
    Row(
        "share_fetch",
        1,
        _share_fetch,
        [["read group:" + SHARE_GROUP, "read topic"]],
        [
            ([], one("error_code", 30)),
            (["read topic"], one("error_code", 30)),
            (["read group:" + SHARE_GROUP], one(FETCHED, 29)),
        ],
    ),
    Row(
        "share_acknowledge",
        1,
        _share_acknowledge,
        [["read group:" + SHARE_GROUP, "read topic"]],
        [
            ([], one("error_code", 30)),
            (["read group:" + SHARE_GROUP], one(FETCHED, 29)),
        ],
    ),
    *(
        _node_only(
            module.__name__.rpartition(".")[2],
            0,
            _state(module, data, partition),
            "results.partitions.error_code",
        )
        for module, data, partition in (
            (initialize_state, "InitializeStateData", initialize_state.PartitionData(0, 1, 0)),
            (read_state, "ReadStateData", read_state.PartitionData(0, 0)),
            (write_state, "WriteStateData", write_state.PartitionData(0, 1, 0, 0)),
            (delete_state, "DeleteStateData", delete_state.PartitionData(7)),
            (state_summary, "ReadStateSummaryData", state_summary.PartitionData(0, 0)),
        )
    ),
    Row(
        "describe_share_group_offsets",
        1,
        _share_offsets(from_leader=False),
        [["describe group:" + SHARE_GROUP, "describe topic"]],
        [
            ([], one("groups.error_code", 30)),
            (
                ["describe group:" + SHARE_GROUP],
                one("groups.topics.partitions.error_code", 29),
            ),
        ],
    ),
    Row(
        "describe_share_group_offsets",
        1,
        _share_offsets(from_leader=True),
        [["cluster_action cluster"]],
        [
            ([], one("groups.error_code", 31)),
            (["describe group:" + SHARE_GROUP, "describe topic"], one("groups.error_code", 31)),
        ],
        "from-leader",
    ),
    Row(
        "alter_share_group_offsets",
        0,
        _alter_share,
        [["read group:idle-sharers", "read topic"]],
        [
            ([], one("error_code", 30)),
            (["read group:idle-sharers"], one("responses.partitions.error_code", 29)),
        ],
    ),
    Row(
        "delete_share_group_offsets",
        0,
        _delete_share,
        [["delete group:idle-sharers", "read topic"]],
        [
            ([], one("error_code", 30)),
            (["delete group:idle-sharers"], one("responses.error_code", 29)),
        ],
    ),
]


def stage(place: RightsPlace) -> bytes:
    """Make the topics, groups and transactions that requests are about; the id of the topic."""
    for name in (TOPIC, "other"):
        place.create_topic(name)
    root = place.client("root")
    topic_id = _awaited_topic(root)
    env = Env(place, topic_id)
    place.grant()
    for api in ("find_coordinator", "init_producer_id", "offset_commit"):
        for row in ROWS:
            if row.api == api:
                _until_settled(partial(root.ask, api, row.version, row.body(env)))
    join_consumers(place)
    join_shares(place)
    idle = share_heartbeat.ShareGroupHeartbeatRequest(
        "idle-sharers", MEMBER, 0, subscribed_topic_names=[TOPIC]
    )
    _until_settled(lambda: root.ask("share_group_heartbeat", 1, idle))
    _until_settled(lambda: root.ask("share_group_heartbeat", 1, idle._replace(member_epoch=-1)))
    return bytes(topic_id)


def _awaited_topic(root: RawClient) -> bytes:
    deadline = time.monotonic() + PATIENCE
    while True:
        topic = root.topic(TOPIC)
        if topic.error_code == 0:
            return bytes(topic.topic_id)
        assert time.monotonic() < deadline, topic
        time.sleep(0.05)


def _until_settled(ask: Callable[[], Any]) -> None:
    """Coordinators may be loading at first."""
    deadline = time.monotonic() + PATIENCE
    while {14, 15, 16} & {code for found in codes(ask()).values() for code in found}:
        assert time.monotonic() < deadline
        time.sleep(0.05)


ACL_NAMES = {
    Resource.TOPIC: [TOPIC, TOPIC[:3], "other", "*", "missing"],
    Resource.GROUP: [GROUP, CONSUMER_GROUP, SHARE_GROUP, "idle-sharers", "s", "*"],
    Resource.TRANSACTIONAL_ID: [TXN, TXN[:2], "*"],
    Resource.CLUSTER: [CLUSTER_NAME],
}


def random_acl(choose: random.Random) -> Acl:
    """Names what requests are about, or something near it."""
    resource = choose.choice(list(ACL_NAMES))
    pattern = Pattern.LITERAL if resource is Resource.CLUSTER else choose.choice(list(Pattern))
    return Acl(
        resource,
        pattern,
        choose.choice(ACL_NAMES[resource]),
        choose.choice(["User:alice", "User:alice", "User:bob", "User:*"]),
        choose.choice(["*", "*", "127.0.0.1", "127.0.0.2"]),
        choose.choice([*Operation][:11]),
        choose.choices([*Permission], (1, 3))[0],
    )


NAMES = {"topic": f"topic:{TOPIC}", "group": f"group:{GROUP}", "txn": f"txn:{TXN}"}


def grants(rights: Sequence[str], env: Env) -> list[str]:
    """`read topic` is about the topic of the requests, `read fresh` about the name of this one."""
    names = {**NAMES, "fresh": f"topic:{env.fresh}"}
    found = []
    for right in rights:
        operation, what = right.split()
        found.append(f"allow alice {operation} {names.get(what, what)}")
    return found
