"""Names that would be paths, lines or nothing at all, through APIs that take names (case 95)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.wire.schema.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.raw_client import RawClient, batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ESCAPES = ["../x", "..", ".", "/etc/x", "a/b", "a\0b", "a\nb", "x" * 250, "\x1b[2J", "ä", ""]
LONGEST = "x" * 249
GROUP, TRANSACTION = 0, 1
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Of the data directory; a name that climbs out of it ends here."""
    return tmp_path / "place"


@pytest.fixture
def raw(place: Path) -> Iterator[RawClient]:
    place.mkdir()
    with ottla.EmbeddedBroker(place / "data") as broker, RawClient(broker.bootstrap) as client:
        yield client


def names_of(place: Path) -> set[str]:
    """In the data directory and above it, but for those that are the broker's own."""
    own = ("__", "ottla.", "meta", "orders-", "recovery-", "replication-", ".")
    places = (place.parent, place, place / "data")
    return {
        str(path) for each in places for path in each.iterdir() if not path.name.startswith(own)
    }


@pytest.mark.parametrize("name", ESCAPES)
def test_case_95_a_name_is_never_a_path(raw: RawClient, place: Path, name: str) -> None:
    before = names_of(place)
    (created,) = raw.ask(
        "create_topics", 7, CreateTopicsRequest((CreatableTopic(name, 1, 1),))
    ).topics
    assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert raw.topic(name, create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert raw.produce(name, batch(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (grown,) = raw.ask(
        "create_partitions", 3, CreatePartitionsRequest((CreatePartitionsTopic(name, 2, None),))
    ).results
    assert grown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (deleted,) = raw.ask(
        "delete_topics", 6, DeleteTopicsRequest(topics=(DeleteTopicState(name),))
    ).responses
    assert deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert names_of(place) == before


def loaded(ask: Callable[[], int]) -> None:
    """It succeeds once the coordinator is there."""
    deadline = time.monotonic() + 30
    while (code := ask()) in LOADING and time.monotonic() < deadline:
        time.sleep(0.02)
    assert code == 0


@pytest.mark.parametrize("name", [name for name in ESCAPES if name])
def test_case_95_groups_and_transactions_may_have_any_name_and_make_no_path(
    raw: RawClient, place: Path, name: str
) -> None:
    raw.topic("orders", create=True)
    raw.produce("orders", batch(b"x"))
    before = names_of(place)
    topic = OffsetCommitRequestTopic(
        "orders", partitions=(OffsetCommitRequestPartition(0, 1, committed_metadata=name),)
    )
    request = OffsetCommitRequest(name, topics=(topic,))
    for kind in (GROUP, TRANSACTION):
        keys = FindCoordinatorRequest(key_type=kind, coordinator_keys=(name,))
        loaded(lambda: raw.ask("find_coordinator", 4, keys).coordinators[0].error_code)  # noqa: B023
    loaded(lambda: raw.ask("offset_commit", 8, request).topics[0].partitions[0].error_code)
    loaded(lambda: raw.ask("init_producer_id", 4, InitProducerIdRequest(name, 1)).error_code)
    assert names_of(place) == before


def test_case_95_the_longest_name_is_a_topic(raw: RawClient, place: Path) -> None:
    answer = raw.ask("create_topics", 7, CreateTopicsRequest((CreatableTopic(LONGEST, 1, 1),)))
    assert [topic.error_code for topic in answer.topics] == [0]
    assert raw.produce(LONGEST, batch(b"x")).error_code == 0
    assert (place / "data" / f"{LONGEST}-0").is_dir()


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\x1b[2J", "x" * 256, "__node", "__table"])
def test_case_95_users_are_refused(raw: RawClient, name: str) -> None:
    upsertion = ScramCredentialUpsertion(name, 1, 4096, b"12345678", bytes(32))
    request = AlterUserScramCredentialsRequest(upsertions=(upsertion,))
    (result,) = raw.ask("alter_user_scram_credentials", 0, request).results
    assert result.user == name
    assert result.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
