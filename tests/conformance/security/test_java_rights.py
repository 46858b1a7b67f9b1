"""Kafka's own clients under ACLs and a mutation quota (cases 57, 58, 60, 62, 63 and 69)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.metadata.security.quotas import CLIENT_ID
from ottla.wire.records import Record
from ottla.wire.schema.fetch import FetchRequest
from ottla.wire.schema.share_fetch import ShareFetchRequest
from tests.support.dead_letters import read_letters
from tests.support.doors import run_in
from tests.support.java_client import JavaClient
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.names import fresh
from tests.support.quota_clients import java_consumer
from tests.support.quotas import set_quotas
from tests.support.raw_client import RawClient, batch
from tests.support.rights import rights_broker
from tests.support.share_member import SHARE_CONFIG, set_group_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.quota_clients import Tool
    from tests.support.rights import RightsBroker

PATIENCE = 60.0
EARLIEST = {"auto.offset.reset": "earliest"}
DLQ = "errors.deadletterqueue.topic.name"


@pytest.fixture(scope="module")
def place() -> Iterator[RightsBroker]:
    with rights_broker(SHARE_CONFIG) as made:
        yield made


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as kept:
        yield kept


@pytest.fixture
def jvm() -> None:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)


def filled(place: RightsBroker, name: str) -> str:
    """A topic with its own name in it."""
    place.broker.create_topic(name)
    place.client("root").produce(name, batch(name.encode()))
    return name


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_57_and_58_a_pattern_finds_what_its_member_may_describe(
    place: RightsBroker, tools: JavaTools, protocol: str
) -> None:
    """KIP-848 resolves it on the broker; the classic protocol does not know such patterns."""
    prefix, group = fresh("pattern"), fresh("group")
    first, second, third = (filled(place, f"{prefix}.{letter}") for letter in "abc")
    place.grant(
        f"allow alice read group:{group}*",
        f"allow bob read group:{group}*",
        f"allow alice read topic:{first}",
        f"allow bob read topic:{second}",
        f"allow bob read topic:{third}",
    )

    def seen(user: str, count: int) -> set[bytes | None]:
        config = {"group.id": f"{group}-{user}", "group.protocol": protocol, **EARLIEST}
        client = JavaClient(place.bootstrap(user), tools)
        found = client.consume(f"~{prefix}.*", count + 1, idle=8.0, config=config)
        return {one.record.value for one in found}

    if protocol == "classic":
        with pytest.raises(RuntimeError, match="UnsupportedOperationException"):
            seen("alice", 1)
        return
    assert seen("alice", 1) == {first.encode()}
    assert seen("bob", 2) == {second.encode(), third.encode()}


def test_57_kafka_topics_lists_what_may_be_seen(place: RightsBroker, tools: JavaTools) -> None:
    seen, hidden = filled(place, fresh("seen")), filled(place, fresh("hidden"))
    place.grant(f"allow alice describe topic:{seen}")
    listed = tools.run("kafka-topics", "--list", bootstrap=place.bootstrap("alice")).stdout.split()
    assert seen in listed
    assert hidden not in listed


def test_60_java_sets_a_dead_letter_topic_where_it_may_write(
    place: RightsBroker, tools: JavaTools
) -> None:
    topic, group, letters = filled(place, fresh("topic")), fresh("group"), fresh("dlq.letters")
    place.broker.create_topic(letters, configs={"errors.deadletterqueue.group.enable": "true"})
    rights = [
        f"allow alice alter_configs group:{group}",
        f"allow alice read group:{group}",
        f"allow alice read topic:{topic}",
    ]
    command = (
        *("kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", group),
        *("--add-config", f"{DLQ}={letters},share.auto.offset.reset=earliest"),
    )
    place.grant(*rights)
    refused = tools.run(*command, bootstrap=place.bootstrap("alice"))
    assert "TopicAuthorizationException" in refused.stdout + refused.stderr
    place.grant(*rights, f"allow alice write topic:{letters}")
    done = tools.run(*command, bootstrap=place.bootstrap("alice"))
    assert done.returncode == 0, done.stderr
    client = JavaClient(place.bootstrap("alice"), tools)
    (rejected,) = client.share_consume(topic, 1, group=group, acknowledge="REJECT")
    (letter,) = read_letters(place.bootstrap("root"), letters, 1)
    assert letter.value() == rejected.record.value == topic.encode()


def until(condition: Callable[[], bool]) -> None:
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.05)


def goes_on(place: RightsBroker, topic: str, owner: Tool) -> None:
    """What is written next arrives, once."""
    before = len(owner.read)
    for number in range(10):
        place.client("root").produce(topic, batch(b"%d" % number))
    until(lambda: len(owner.read) >= before + 10)
    assert owner.read == list(range(before + 10))


def test_62_javas_fetch_session_is_closed_to_others(place: RightsBroker, jvm: None) -> None:
    topic, group = filled(place, fresh("topic")), fresh("group")
    place.grant(
        *(f"allow {who} read topic:{topic}" for who in ("alice", "bob")),
        f"allow alice read group:{group}",
    )
    owner = java_consumer(place.bootstrap("alice"), topic, group)
    try:
        until(lambda: owner.read == [0])
        sessions = run_in(place.broker, lambda node: list(node.fetch_sessions._sessions))
        assert sessions
        for session in sessions:
            for epoch in (1, 2, -1):
                stolen = FetchRequest(max_bytes=1000, session_id=session, session_epoch=epoch)
                assert place.client("bob").fetch(stolen).error_code == 70
        goes_on(place, topic, owner)
    finally:
        owner.stop()


def test_62_javas_share_session_is_closed_to_others(place: RightsBroker, jvm: None) -> None:
    topic, group = filled(place, fresh("topic")), fresh("group")
    place.grant(
        *(f"allow {who} read topic:{topic}" for who in ("alice", "bob")),
        *(f"allow {who} read group:{group}" for who in ("alice", "bob")),
    )
    set_group_configs(place.client("root"), group, share_auto_offset_reset="earliest")
    owner = java_consumer(place.bootstrap("alice"), topic, group, shares=True)
    try:
        until(lambda: owner.read == [0])
        with ottla.sync.Admin(place.bootstrap("root")) as admin:
            (described,) = admin.describe_share_groups([group])
        (member,) = (one.id for one in described.members)
        for epoch in (1, 2, -1):
            stolen = ShareFetchRequest(group, member, epoch, 0, 0, 1000, 10, 10)
            assert place.ask("bob", "share_fetch", 1, stolen).error_code == 122
        goes_on(place, topic, owner)
        assert owner.deliveries == {1}
    finally:
        owner.stop()


def test_63_javas_producers_need_their_rights(place: RightsBroker, tools: JavaTools) -> None:
    topic = filled(place, fresh("topic"))
    place.grant(f"allow alice write topic:{topic[:-2]}*", "allow alice write txn:mine")
    client = JavaClient(place.bootstrap("alice"), tools)
    record = [Record(0, 1000, None, b"v")]
    # An idempotent one is let in by the right to write to some topic.
    client.produce(topic, record)
    client.produce(topic, record, transaction="commit", config={"transactional.id": "mine"})
    with pytest.raises(RuntimeError, match="TransactionalIdAuthorizationException"):
        client.produce(topic, record, transaction="commit", config={"transactional.id": "other"})
    with pytest.raises(RuntimeError, match="TopicAuthorizationException"):
        client.produce(filled(place, fresh("closed")), record)


def test_69_javas_admin_waits_and_succeeds(place: RightsBroker, tools: JavaTools) -> None:
    name = fresh("client")
    set_quotas(place.broker, {CLIENT_ID: name}, controller_mutation_rate=0.5)
    prefix = fresh("topic")
    # 5.5 are there at once.
    JavaClient(place.bootstrap("root"), tools).create(prefix, 8, config={"client.id": name})
    with RawClient(place.bootstrap("root")) as client:
        assert {client.topic(f"{prefix}-{number}").error_code for number in range(8)} == {0}
