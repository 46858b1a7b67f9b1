"""ACLs over the wire: made, described and deleted; what they do to topics, sessions and patterns.

Cases 51 to 54, 58 to 63 and 88 of the specification of security, with a raw client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla.metadata.config.security_keys import SECURITY_CONFIGS
from ottla.wire.schema.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.schema.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.schema.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema.describe_acls import DescribeAclsRequest
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema.share_acknowledge import ShareAcknowledgeRequest
from ottla.wire.schema.share_fetch import FetchPartition as SharePartition
from ottla.wire.schema.share_fetch import FetchTopic as ShareTopic
from ottla.wire.schema.share_fetch import ShareFetchRequest
from tests.support.names import fresh
from tests.support.raw_client import RawClient, batch, fetch_request
from tests.support.rights import creation, parsed, rights_broker

if TYPE_CHECKING:
    from tests.support.rights import RightsBroker

GOOD = creation(parsed("allow alice read topic:orders"))
ALL = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


def described(place: RightsBroker, request: DescribeAclsRequest = ALL) -> set[tuple[Any, ...]]:
    answer = place.ask("root", "describe_acls", 3, request)
    assert answer.error_code == 0
    return {
        (resource.resource_type, resource.pattern_type, resource.resource_name, *acl)
        for resource in answer.resources
        for acl in resource.acls
    }


def created(place: RightsBroker, *creations: AclCreation) -> list[int]:
    answer = place.ask("root", "create_acls", 3, CreateAclsRequest(creations))
    return [result.error_code for result in answer.results]


def test_what_is_made_is_described_and_deleted(place: RightsBroker) -> None:
    place.grant(
        "allow alice read topic:orders", "deny * write topic:ord*", "allow bob describe cluster"
    )
    orders = (2, 3, "orders", "User:alice", "*", 3, 3)
    prefix = (2, 4, "ord", "User:*", "*", 4, 2)
    cluster = (4, 3, "kafka-cluster", "User:bob", "*", 8, 3)
    assert described(place) == {orders, prefix, cluster}
    match = DescribeAclsRequest(2, "orders", 2, None, None, 1, 1)
    assert described(place, match) == {orders, prefix}
    filters = [
        DeleteAclsFilter(2, "ord", 4, None, None, 1, 1),
        DeleteAclsFilter(2, "nothing", 3, None, None, 1, 1),
        DeleteAclsFilter(0, None, 1, None, None, 1, 1),
        DeleteAclsFilter(2, None, 1, None, None, 1, 1),
    ]
    answer = place.ask("root", "delete_acls", 3, DeleteAclsRequest(filters))
    assert [result.error_code for result in answer.filter_results] == [0, 0, 42, 0]
    assert [len(result.matching_acls) for result in answer.filter_results] == [1, 0, 0, 2]
    assert described(place) == {cluster}


def test_a_creation_that_means_nothing_fails_alone(place: RightsBroker) -> None:
    place.grant()
    bad = [
        GOOD._replace(resource_type=1),
        GOOD._replace(resource_pattern_type=2),
        GOOD._replace(resource_name=""),
        GOOD._replace(resource_type=4),
        GOOD._replace(principal="alice"),
        GOOD._replace(host="localhost"),
        GOOD._replace(operation=1),
        GOOD._replace(permission_type=0),
    ]
    assert created(place, *bad, GOOD, GOOD) == [42] * len(bad) + [0, 0]
    assert created(place, GOOD) == [0]
    assert len(described(place)) == 1


def test_tokens_and_users_round_trip(place: RightsBroker) -> None:
    place.grant()
    kept = [GOOD._replace(resource_type=kind, operation=8) for kind in (6, 7)]
    assert created(place, *kept) == [0, 0]
    assert {row[0] for row in described(place)} == {6, 7}


def test_54_too_many_at_once_are_refused_each(place: RightsBroker) -> None:
    place.grant()
    many = [GOOD] * 10_001
    assert created(place, *many) == [44] * len(many)
    filters = [DeleteAclsFilter(1, None, 1, None, None, 1, 1)] * 10_001
    answer = place.ask("root", "delete_acls", 3, DeleteAclsRequest(filters))
    assert [result.error_code for result in answer.filter_results] == [44] * len(filters)
    assert not described(place)


@pytest.mark.long
def test_54_the_hundred_thousand_and_first_is_refused() -> None:
    with rights_broker() as place:
        for ten in range(10):
            part = [GOOD._replace(resource_name=f"t{ten}-{n}") for n in range(10_000)]
            assert set(created(place, *part)) == {0}
        assert created(place, GOOD, GOOD._replace(host="10.0.0.1")) == [44, 44]
        assert created(place, GOOD._replace(resource_name="t0-0")) == [0]
        filters = [DeleteAclsFilter(1, None, 1, None, None, 1, 1)] * 50
        answer = place.ask("root", "delete_acls", 3, DeleteAclsRequest(filters))
        assert {result.error_code for result in answer.filter_results} == {44}
        named = [DeleteAclsFilter(2, f"t1-{n}", 3, None, None, 1, 1) for n in range(10_000)]
        answer = place.ask("root", "delete_acls", 3, DeleteAclsRequest(named))
        assert {len(result.matching_acls) for result in answer.filter_results} == {1}
        assert created(place, GOOD) == [0]


def test_without_an_authorizer_there_are_no_acls() -> None:
    with ottla.EmbeddedBroker() as broker, RawClient(broker.bootstrap) as client:
        assert client.ask("describe_acls", 3, ALL).error_code == 54
        made = client.ask("create_acls", 3, CreateAclsRequest([GOOD] * 2))
        assert [result.error_code for result in made.results] == [54, 54]
        gone = client.ask("delete_acls", 3, DeleteAclsRequest([DeleteAclsFilter()] * 2))
        assert [result.error_code for result in gone.filter_results] == [54, 54]


def produced(place: RightsBroker, user: str, topic: str) -> int:
    return int(place.client(user).produce(topic, batch(b"v")).error_code)


def test_51_deny_wins_and_a_super_user_wins_over_it(place: RightsBroker) -> None:
    topic = fresh("topic")
    place.broker.create_topic(topic)
    place.grant(f"allow alice write topic:{topic}", f"deny alice read topic:{topic}")
    assert produced(place, "alice", topic) == 0
    assert place.client("alice").topic(topic).error_code == 0
    assert place.client("alice").fetch_one(topic, 0).error_code == 29
    place.grant(f"allow alice write topic:{topic}", "deny * all topic:*")
    assert produced(place, "alice", topic) == 29
    assert place.client("alice").topic(topic).error_code == 29
    assert produced(place, "root", topic) == 0


def test_52_an_acl_for_another_host_does_not_count(place: RightsBroker) -> None:
    topic = fresh("topic")
    place.broker.create_topic(topic)
    write = parsed(f"allow alice write topic:{topic}")
    for host, code in (
        ("127.0.0.1", 0),
        ("::ffff:127.0.0.1", 0),
        ("127.0.0.2", 29),
        ("::1", 29),
    ):
        place.grant()
        made = creation(write._replace(host=host))
        assert created(place, made) == [0]
        assert produced(place, "alice", topic) == code, host


def test_53_everyone_where_no_acl_is() -> None:
    with rights_broker({"allow.everyone.if.no.acl.found": "true"}) as place:
        for name in ("open", "named"):
            place.broker.create_topic(name)
        place.grant("allow bob read topic:named")
        assert produced(place, "alice", "open") == 0
        assert produced(place, "alice", "named") == 29
        assert place.client("alice").produce("__consumer_offsets", batch(b"v")).error_code == 29


def heartbeat(
    place: RightsBroker, user: str, group: str, member: str, epoch: int = 0, **fields: Any
) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group, member, epoch, rebalance_timeout_ms=10_000, **fields
    )
    return place.ask(user, "consumer_group_heartbeat", 1, request)


def test_58_a_pattern_matches_what_its_member_may_describe(place: RightsBroker) -> None:
    prefix, group = fresh("pattern"), fresh("group")
    names = {f"{prefix}.{letter}" for letter in "abc"}
    for name in names:
        place.broker.create_topic(name)
    ids = {place.client("root").topic(name).topic_id: name for name in names}
    place.ask("root", "find_coordinator", 4, FindCoordinatorRequest(coordinator_keys=[group]))
    place.grant(
        f"allow alice read group:{group}",
        f"allow bob read group:{group}",
        f"allow alice read topic:{prefix}.a",
        f"allow bob read topic:{prefix}.b",
        f"allow bob describe topic:{prefix}.c",
    )
    pattern = f"{prefix}.*"

    def settled(user: str, member: str) -> set[str]:
        """What the member is given in the end."""
        epoch, owned = 0, set()
        for _ in range(5):
            fields = {"subscribed_topic_regex": pattern} if epoch == 0 else {}
            answer = heartbeat(place, user, group, member, epoch, **fields)
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = {ids[topic.topic_id] for topic in answer.assignment.topic_partitions}
        return owned

    assert settled("alice", "A" * 22) == {f"{prefix}.a"}
    assert settled("bob", "B" * 22) == {f"{prefix}.b", f"{prefix}.c"}
    shown = place.ask(
        "root", "consumer_group_describe", 1, ConsumerGroupDescribeRequest([group])
    ).groups[0]
    assert {member.subscribed_topic_regex for member in shown.members} == {pattern}


def test_58_a_pattern_cannot_name_another_principal(place: RightsBroker) -> None:
    group = fresh("group")
    place.grant(f"allow alice read group:{group}")
    answer = heartbeat(
        place, "alice", group, "A" * 22, subscribed_topic_regex=".*\0User:root\x00127.0.0.1"
    )
    assert answer.error_code == 128


OWN = ["__remote_log_metadata", "__consumer_offsets"]


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("client_id", ["raw", "__admin_client"])
def test_59_own_topics_are_closed_to_all_but_nodes(
    place: RightsBroker, name: str, client_id: str
) -> None:
    place.grant("allow alice all topic:*", "allow alice all cluster")
    retention = AlterableConfig("retention.ms", 0, "1")
    with place.connect("alice", client_id=client_id) as client:
        codes = [
            client.produce(name, batch(b"v")).error_code,
            client.ask("delete_topics", 6, DeleteTopicsRequest(topics=[DeleteTopicState("other")]))
            .responses[0]
            .error_code,
            client.ask("create_topics", 7, CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
            .topics[0]
            .error_code,
            client.ask(
                "create_partitions",
                3,
                CreatePartitionsRequest([CreatePartitionsTopic(name, 99, None)]),
            )
            .results[0]
            .error_code,
            client.ask(
                "incremental_alter_configs",
                1,
                IncrementalAlterConfigsRequest([AlterConfigsResource(2, name, [retention])]),
            )
            .responses[0]
            .error_code,
        ]
        assert codes == [29, 3, 29, 29, 29]
        place.client("root").topic(name, create=True)
        deleted = client.ask(
            "delete_topics", 6, DeleteTopicsRequest(topics=[DeleteTopicState(name)])
        )
        assert deleted.responses[0].error_code == 29


def test_61_a_client_that_calls_itself_a_replica_gets_nothing(place: RightsBroker) -> None:
    topic = fresh("topic")
    place.broker.create_topic(topic)
    place.grant(f"allow alice all topic:{topic}")
    assert produced(place, "alice", topic) == 0
    before = place.client("root").offset(topic, -1).offset
    asked = fetch_request({(topic, 0): 1_000_000})._replace(replica_id=5)
    answer = place.client("alice").fetch(asked)
    assert answer.responses[0].partitions[0].error_code == 29
    assert place.client("root").offset(topic, -1).offset == before == 1


def test_62_a_fetch_session_belongs_to_its_principal(place: RightsBroker) -> None:
    topic = fresh("topic")
    place.broker.create_topic(topic)
    place.grant(f"allow alice read topic:{topic}", f"allow bob read topic:{topic}")
    partition = FetchTopic(topic, partitions=[FetchPartition(0, -1, 0, -1, -1, 1000)])
    opening = FetchRequest(max_bytes=1000, session_epoch=0, topics=[partition])
    session = place.client("alice").fetch(opening).session_id
    assert session > 0
    for epoch in (1, 0, -1):
        stolen = opening._replace(session_id=session, session_epoch=epoch, topics=[])
        assert place.client("bob").fetch(stolen).error_code == 70
    mine = opening._replace(session_id=session, session_epoch=1, topics=[])
    assert place.client("alice").fetch(mine).error_code == 0


def test_62_a_revoked_right_counts_for_a_session_too(place: RightsBroker) -> None:
    topic = fresh("topic")
    place.broker.create_topic(topic)
    place.grant(f"allow alice read topic:{topic}")
    partition = FetchTopic(topic, partitions=[FetchPartition(0, -1, 0, -1, -1, 1000)])
    opening = FetchRequest(max_bytes=1000, session_epoch=0, topics=[partition])
    session = place.client("alice").fetch(opening).session_id
    place.grant()
    answer = place.client("alice").fetch(
        opening._replace(session_id=session, session_epoch=1, topics=[])
    )
    assert answer.responses[0].partitions[0].error_code == 29


def test_62_a_share_session_belongs_to_its_principal(place: RightsBroker) -> None:
    topic, group = fresh("topic"), fresh("group")
    place.broker.create_topic(topic)
    place.grant(
        *(
            f"allow {who} read {what}"
            for who in ("alice", "bob")
            for what in (f"topic:{topic}", f"group:{group}")
        )
    )
    topic_id = place.client("root").topic(topic).topic_id
    topics = [ShareTopic(topic_id, [SharePartition(0)])]
    opening = ShareFetchRequest(group, "m" * 22, 0, 0, 0, 1000, 10, 10, topics=topics)
    assert place.ask("alice", "share_fetch", 1, opening).error_code == 0
    for epoch in (0, 1, -1):
        stolen = opening._replace(share_session_epoch=epoch, topics=[])
        assert place.ask("bob", "share_fetch", 1, stolen).error_code == 122
        if epoch:
            acknowledged = ShareAcknowledgeRequest(group, "m" * 22, epoch)
            assert place.ask("bob", "share_acknowledge", 1, acknowledged).error_code == 122
    mine = opening._replace(share_session_epoch=1, topics=[])
    assert place.ask("alice", "share_fetch", 1, mine).error_code == 0


def transactional(name: str | None, topic: str) -> ProduceRequest:
    """CVE-2018-17196: the flags of the batch count, not what the request says."""
    records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    data = [PartitionProduceData(0, bytes(records))]
    return ProduceRequest(name, -1, 1000, [TopicProduceData(topic, partition_data=data)])


@pytest.mark.parametrize("name", [None, "somebody-elses"])
def test_63_a_transactional_batch_needs_its_transactional_id(
    place: RightsBroker, name: str | None
) -> None:
    topic = fresh("topic")
    place.broker.create_topic(topic)
    place.grant(f"allow alice write topic:{topic}", "allow alice write txn:mine")
    answer = place.ask("alice", "produce", 11, transactional(name, topic))
    assert answer.responses[0].partition_responses[0].error_code == 53
    assert place.client("root").offset(topic, -1).offset == 0


def test_63_an_idempotent_producer_needs_write_on_one_prefix(place: RightsBroker) -> None:
    prefix = fresh("prefix")
    place.broker.create_topic(f"{prefix}-a")
    place.grant(f"allow alice write topic:{prefix}*")
    given = place.ask("alice", "init_producer_id", 4, InitProducerIdRequest(None, 1000))
    assert given.error_code == 0
    records = batch(b"v", producer_id=given.producer_id, producer_epoch=0, base_sequence=0)
    assert place.client("alice").produce(f"{prefix}-a", records).error_code == 0


@pytest.mark.parametrize("key", sorted(config.name for config in SECURITY_CONFIGS))
def test_88_no_security_setting_is_altered_over_the_wire(place: RightsBroker, key: str) -> None:
    for name in (key, f"listener.name.alice.{key}"):
        changed = [AlterableConfig(name, 0, "1")]
        answer = place.ask(
            "root",
            "incremental_alter_configs",
            1,
            IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", changed)]),
        )
        assert answer.responses[0].error_code == 40, answer
