"""Every API with enough rights and with too few; what is hidden; what nobody without rights gets.

Cases 55, 56, 57 and 64 of the specification of security.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.access.permissions import PERMISSIONS
from ottla.broker.serving.apis import SERVED
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.schema.describe_cluster import DescribeClusterRequest
from ottla.wire.schema.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.schema.list_groups import ListGroupsRequest
from ottla.wire.schema.list_transactions import ListTransactionsRequest
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support import permission_rows
from tests.support.permission_rows import (
    CONSUMER_GROUP,
    GROUP,
    REFUSALS,
    ROWS,
    SHARE_GROUP,
    TOPIC,
    TXN,
    Env,
    Row,
    codes,
    grants,
)
from tests.support.rights import KINDS, rights_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.security.acls import Resource
    from tests.support.rights import RightsBroker

ZERO = bytes(16)


@pytest.fixture(scope="module", autouse=True)
def stage(place: RightsBroker) -> bytes:
    """The id of the topic that requests are about."""
    return permission_rows.stage(place)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_55_enough_rights_are_enough(place: RightsBroker, stage: bytes, row: Row) -> None:
    for rights in row.enough:
        env = Env(place, stage)
        place.grant(*grants(rights, env))
        answer = place.ask("alice", row.api, row.version, row.body(env))
        given = {code for found in codes(answer).values() for code in found}
        assert not given & REFUSALS, (rights, answer)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_55_too_few_are_refused_with_this_code_in_this_place(
    place: RightsBroker, stage: bytes, row: Row
) -> None:
    for rights, expected in row.refused:
        env = Env(place, stage)
        place.grant(*grants(rights, env))
        answer = place.ask("alice", row.api, row.version, row.body(env))
        assert codes(answer) == {path: {code} for path, code in expected.items()}, (rights, answer)


def test_55_partitions_beside_a_refused_one_are_not_attempted(place: RightsBroker) -> None:
    place.grant(f"allow alice write txn:{TXN}", f"allow alice write topic:{TOPIC}")
    topics = [AddPartitionsToTxnTopic(name, [0]) for name in (TOPIC, "other")]
    request = AddPartitionsToTxnRequest(TXN, 1, 0, topics)
    answer = place.ask("alice", "add_partitions_to_txn", 3, request)
    assert {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in answer.results_by_topic_v3_and_below
    } == {TOPIC: 55, "other": 29}


def test_64_every_served_api_has_a_row() -> None:
    assert PERMISSIONS.keys() == SERVED.keys()


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: API_NAMES[key])
def test_64_every_need_is_driven_allowed_and_refused(key: int) -> None:
    rows = [row for row in ROWS if row.key == key]
    given = {_right(right) for row in rows for rights in row.enough for right in rights}
    refused = {code for row in rows for _, expected in row.refused for code in expected.values()}
    for need in PERMISSIONS[key]:
        if need.code is not None:
            assert need.code in refused, need
        assert given & {(right.operation.name, right.resource) for right in need.rights} or (
            need.refused == "left out"
        ), need


def _right(text: str) -> tuple[str, Resource]:
    operation, _, what = text.partition(" ")
    kind = what.partition(":")[0]
    return operation.upper(), KINDS["topic" if kind == "fresh" else kind]


@pytest.fixture(scope="module")
def unguarded() -> Iterator[Env]:
    """A broker without an authorizer, on which no check refuses."""
    with rights_broker({"authorizer.class.name": "", "super.users": ""}) as made:
        yield Env(made, permission_rows.stage(made))


DELETES = [row for row in ROWS if row.api == "delete_topics" and row.case in ("", "by-id")]
"""They would delete the topic that the others are about."""


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in ROWS
        if row.refused and row.case != "transactional-without-id" and row not in DELETES
    ],
    ids=str,
)
def test_64_a_handler_that_forgot_its_check_would_be_found(unguarded: Env, row: Row) -> None:
    """The refusals of 55 come from the checks, and from nothing else in the handlers."""
    env = Env(unguarded.place, unguarded.topic_id)
    answer = env.place.ask("alice", row.api, row.version, row.body(env))
    given = {code for found in codes(answer).values() for code in found}
    assert not given & REFUSALS, answer


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: API_NAMES[key])
def test_nobody_without_rights_gets_anything(place: RightsBroker, stage: bytes, key: int) -> None:
    """Every request of the rows: its answer is a refusal, or has nothing that exists in it."""
    place.grant()
    rows = [row for row in ROWS if row.key == key]
    assert rows or key in (17, 18, 36)  # what authentication takes
    for row in rows:
        env = Env(place, stage)
        answer = place.ask("alice", row.api, row.version, row.body(env))
        given = {code for found in codes(answer).values() for code in found}
        assert given <= REFUSALS | {3}
        assert given or _is_empty(answer), answer


def _is_empty(answer: Any) -> bool:
    """No lists, but for the brokers, which everybody may see."""
    return all(
        name == "brokers"
        or not isinstance(getattr(answer, name), list | tuple)
        or not getattr(answer, name)
        for name in answer._fields
    )


NAMED = [
    row
    for row in ROWS
    if row.key in (0, 1, 2, 3, 8, 9, 20, 21, 23, 28, 32, 33, 37, 44, 47, 61, 75, 91, 92)
    and row.case not in ("group", "cluster", "dead-letters", "by-id", "creating", "missing")
    and row.refused
    and "topic_id" not in row.body.__code__.co_names
]


@pytest.mark.parametrize("row", NAMED, ids=str)
def test_56_a_hidden_topic_looks_like_a_missing_one(
    place: RightsBroker, stage: bytes, row: Row
) -> None:
    """With all rights but those on the topic, byte for byte but for the name."""
    place.grant(
        f"allow alice all group:{GROUP}",
        "allow alice all group:idle-sharers",
        f"allow alice all txn:{TXN}",
    )
    request = row.body(Env(place, stage))
    with place.connect("alice") as client:
        client.send(row.api, row.version, request)
        hidden = client.receive_frame()
        client.send(row.api, row.version, _renamed(request, TOPIC, "nosuch"))
        missing = client.receive_frame()
    assert TOPIC.encode() in hidden
    assert missing[4:] == hidden[4:].replace(TOPIC.encode(), b"nosuch")


def _renamed(value: Any, old: str, new: str) -> Any:
    if value == old:
        return new
    if hasattr(value, "_fields"):
        return type(value)(*(_renamed(item, old, new) for item in value))
    if isinstance(value, list | tuple):
        return [_renamed(item, old, new) for item in value]
    return value


def test_56_an_unknown_id_is_unknown_to_everybody(place: RightsBroker, stage: bytes) -> None:
    place.grant()
    unknown = Env(place, bytes(range(16)))
    found = {}
    for row in ROWS:
        by_id = row.case == "by-id" or (row.api in ("produce", "fetch") and row.version == 13)
        if by_id:
            answer = place.ask("alice", row.api, row.version, row.body(unknown))
            (found[str(row)],) = (code for some in codes(answer).values() for code in some)
    assert set(found.values()) == {100}
    assert len(found) == 4


def test_56_a_hidden_topic_has_no_name_by_id_and_no_id_by_name(
    place: RightsBroker, stage: bytes
) -> None:
    place.grant()
    by_id = MetadataRequest([MetadataRequestTopic(stage, None)])
    by_name = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
    (shown,) = place.ask("alice", "metadata", 12, by_id).topics
    assert (shown.name, shown.topic_id, shown.partitions) == (None, stage, ())
    (shown,) = place.ask("alice", "metadata", 12, by_name).topics
    assert (shown.name, shown.topic_id, shown.partitions) == (TOPIC, ZERO, ())


def test_57_lists_have_what_may_be_seen(place: RightsBroker, stage: bytes) -> None:
    def seen() -> tuple[set[str], set[str], set[str], set[str], set[str]]:
        topics = place.ask("alice", "metadata", 12, MetadataRequest(None)).topics
        paged = place.ask(
            "alice", "describe_topic_partitions", 0, DescribeTopicPartitionsRequest()
        ).topics
        groups = place.ask("alice", "list_groups", 4, ListGroupsRequest()).groups
        listed = place.ask("alice", "list_transactions", 1, ListTransactionsRequest())
        offsets = place.ask(
            "alice",
            "offset_fetch",
            8,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)]),
        )
        return (
            {topic.name for topic in topics},
            {topic.name for topic in paged},
            {group.group_id for group in groups},
            {state.transactional_id for state in listed.transaction_states},
            {topic.name for group in offsets.groups for topic in group.topics},
        )

    (commit,) = (row for row in ROWS if row.api == "offset_commit")
    place.ask("root", commit.api, commit.version, commit.body(Env(place, stage)))
    place.grant()
    assert seen() == (set(), set(), set(), set(), set())
    place.grant(f"allow alice describe group:{GROUP}")
    assert seen() == (set(), set(), {GROUP}, set(), set())
    place.grant(
        f"allow alice describe group:{GROUP}",
        f"allow alice describe topic:{TOPIC}",
        f"allow alice describe txn:{TXN}",
    )
    assert seen() == ({TOPIC}, {TOPIC}, {GROUP}, {TXN}, {TOPIC})
    place.grant("allow alice describe cluster")
    assert seen()[2] >= {GROUP, CONSUMER_GROUP, SHARE_GROUP}


def test_112_operations_are_told_where_they_are_asked_for(place: RightsBroker) -> None:
    place.grant(f"allow alice write topic:{TOPIC}", "allow alice describe cluster")
    asked = MetadataRequest(
        [MetadataRequestTopic(name=TOPIC)],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = place.ask("alice", "metadata", 10, asked)
    assert answer.topics[0].topic_authorized_operations == 1 << 4 | 1 << 8
    assert answer.cluster_authorized_operations == 1 << 8
    silent = place.ask("alice", "metadata", 10, MetadataRequest(asked.topics))
    assert silent.topics[0].topic_authorized_operations == -(2**31)
    assert silent.cluster_authorized_operations == -(2**31)
    place.grant()
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert place.ask("alice", "describe_cluster", 1, cluster).cluster_authorized_operations == 0
    everything = place.ask("root", "describe_cluster", 1, cluster).cluster_authorized_operations
    assert everything == sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
