"""Apache Kafka as the judge: requests of users with random rights are refused alike, and the
operations that users are told are the same.

Cases 55 and 112 of the specification of security, and the 500 triples of principal, ACLs and
request.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.wire.schema.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.schema.describe_cluster import DescribeClusterRequest
from ottla.wire.schema.describe_groups import DescribeGroupsRequest
from ottla.wire.schema.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema.share_group_describe import ShareGroupDescribeRequest
from tests.support import permission_rows
from tests.support.judging_kafka import JudgingKafka
from tests.support.permission_rows import (
    CONSUMER_GROUP,
    GROUP,
    REFUSALS,
    ROWS,
    SHARE_GROUP,
    TOPIC,
    Env,
    Row,
    codes,
    grants,
    join_consumers,
    join_shares,
    random_acl,
)
from tests.support.rights import rights_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.rights import RightsPlace

pytestmark = pytest.mark.jvm

SETS, REQUESTS = 125, 4
OURS = ("dead-letters", "from-leader", "with_state")  # Kafka has no such setting, and no such field
UNLIKE = ("describe_user_scram_credentials",)  # Kafka does not answer who may not ask

Places = dict[str, tuple["RightsPlace", bytes]]


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    """Both brokers, with the id of the topic on each."""
    with rights_broker() as own, JudgingKafka() as kafka:
        yield {
            "ottla": (own, permission_rows.stage(own)),
            "kafka": (kafka, permission_rows.stage(kafka)),
        }


def comparable(row: Row) -> bool:
    return row.case not in OURS and row.api not in UNLIKE


@pytest.mark.parametrize("row", [row for row in ROWS if comparable(row)], ids=str)
def test_55_kafka_refuses_with_the_same_codes(places: Places, row: Row) -> None:
    kafka, topic_id = places["kafka"]
    for rights, expected in row.refused:
        env = Env(kafka, topic_id)
        kafka.grant(*grants(rights, env))
        answer = kafka.ask("alice", row.api, row.version, row.body(env))
        assert codes(answer) == {path: {code} for path, code in expected.items()}, (rights, answer)
    for rights in row.enough:
        env = Env(kafka, topic_id)
        kafka.grant(*grants(rights, env))
        answer = kafka.ask("alice", row.api, row.version, row.body(env))
        assert not _refusals(answer), (rights, answer)


def _refusals(answer: Any) -> dict[str, set[int]]:
    return {path: found & REFUSALS for path, found in codes(answer).items() if found & REFUSALS}


def test_500_random_triples_are_answered_as_by_kafka(places: Places) -> None:
    choose = random.Random(500)
    # What is deleted would be missing from later requests.
    rows = [
        row
        for row in ROWS
        if comparable(row) and (row.api != "delete_topics" or row.case == "missing")
    ]
    refused = 0
    for _ in range(SETS):
        acls = list({random_acl(choose) for _ in range(choose.randrange(4, 16))})
        for place, _topic_id in places.values():
            place.set(acls)
        for _ in range(REQUESTS):
            row, user = choose.choice(rows), choose.choice(["alice", "alice", "bob"])
            fresh = permission_rows.fresh_name()
            found = {}
            for name, (place, topic_id) in places.items():
                env = Env(place, topic_id, user, fresh)
                answer = place.ask(user, row.api, row.version, row.body(env))
                found[name] = _refusals(answer)
            assert found["ottla"] == found["kafka"], (str(row), user, sorted(acls))
            refused += bool(found["kafka"])
    assert 100 < refused < 450  # both answers are common


ASKED = [
    ("metadata", 12, MetadataRequest([MetadataRequestTopic(name=TOPIC)], False, False, True)),
    ("metadata", 10, MetadataRequest([MetadataRequestTopic(name=TOPIC)], False, True, True)),
    ("metadata", 10, MetadataRequest([MetadataRequestTopic(name=TOPIC)], False, False, False)),
    ("describe_groups", 6, DescribeGroupsRequest([GROUP], True)),
    ("describe_groups", 6, DescribeGroupsRequest(["none"], True)),
    ("describe_groups", 5, DescribeGroupsRequest(["none"], True)),
    ("describe_groups", 5, DescribeGroupsRequest([GROUP], False)),
    ("describe_cluster", 1, DescribeClusterRequest(True)),
    ("describe_cluster", 1, DescribeClusterRequest(False)),
    ("consumer_group_describe", 1, ConsumerGroupDescribeRequest([CONSUMER_GROUP], True)),
    ("consumer_group_describe", 1, ConsumerGroupDescribeRequest([CONSUMER_GROUP], False)),
    ("share_group_describe", 1, ShareGroupDescribeRequest([SHARE_GROUP], True)),
    ("share_group_describe", 1, ShareGroupDescribeRequest([SHARE_GROUP], False)),
    ("describe_topic_partitions", 0, DescribeTopicPartitionsRequest([TopicRequest(TOPIC)])),
    ("describe_topic_partitions", 0, DescribeTopicPartitionsRequest([TopicRequest("missing")])),
]


def test_112_operations_are_those_that_kafka_tells(places: Places) -> None:
    choose = random.Random(112)
    told: set[int] = set()
    for number in range(30):
        acls = list({random_acl(choose) for _ in range(choose.randrange(5, 30))})
        for place, _ in places.values():
            place.set(acls if number else [])
        for api, version, request in ASKED:
            found = {}
            for name, (place, _topic_id) in places.items():
                if api == "consumer_group_describe":
                    join_consumers(place)
                if api == "share_group_describe":
                    join_shares(place)
                found[name] = _operations(place.ask("alice", api, version, request))
            assert found["ottla"] == found["kafka"], (api, version, request, sorted(acls))
            told |= {bits for bits in found["kafka"].values() if bits > 0}
    assert len(told) > 10


def _operations(value: Any, path: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    if hasattr(value, "_fields"):
        for name in value._fields:
            found |= _operations(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            found |= _operations(item, f"{path}[{index}]")
    elif path.endswith("operations"):
        found[path] = value
    return found
