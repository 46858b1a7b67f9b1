"""The requests: initialize, read, write, delete

Each is about (group, topic id, partition). They are Kafka's own requests between brokers, so that
the tests can ask as a broker does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.schema import initialize_share_group_state as initializing
from ottla.wire.schema import read_share_group_state as reading
from tests.clauses.persister.state import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    FENCED_LEADER_EPOCH,
    FENCED_STATE_EPOCH,
    INVALID_REQUEST,
    UNKNOWN_TOPIC_OR_PARTITION,
    Batch,
    ShareState,
)

if TYPE_CHECKING:
    from ottla import EmbeddedBroker


def test_initialize_sets_the_state_epoch_and_the_start_offset(state: ShareState) -> None:
    """`initialize` makes the state, at the given state epoch and start offset."""
    assert state.initialize(state_epoch=3, start=17) == 0
    found = state.read()
    assert (found.error_code, found.state_epoch, found.start_offset) == (0, 3, 17)
    assert list(found.state_batches) == []


def test_initialize_without_a_start_leaves_it_open(state: ShareState) -> None:
    """A start offset of -1 is resolved by the leader, when somebody fetches."""
    assert state.initialize(start=-1) == 0
    found = state.summary()
    assert (found.start_offset, found.delivery_complete_count) == (-1, -1)


def test_initialize_again_forgets_what_was_stored(state: ShareState) -> None:
    """`initialize` with a higher epoch begins anew: no batches, no count."""
    state.initialize(state_epoch=1)
    state.write(Batch(0, 9, ACKNOWLEDGED, 1), complete=10)
    assert state.initialize(state_epoch=2, start=5) == 0
    assert state.batches() == []
    found = state.summary()
    assert (found.state_epoch, found.start_offset) == (2, 5)
    assert found.delivery_complete_count == 0


def test_initialize_with_a_lower_state_epoch_is_fenced(state: ShareState) -> None:
    """An `initialize` of an older state epoch is fenced; the caller gets the error."""
    assert state.initialize(state_epoch=2) == 0
    assert state.initialize(state_epoch=1) == FENCED_STATE_EPOCH
    assert state.initialize(state_epoch=2) == 0


def test_read_returns_epoch_start_and_batches(state: ShareState) -> None:
    """`read_state` returns the state epoch, the start offset and the batches."""
    state.initialize(state_epoch=4)
    state.write(Batch(2, 3, AVAILABLE, 2), state_epoch=4, start=2)
    found = state.read()
    assert (found.state_epoch, found.start_offset) == (4, 2)
    assert [tuple(one) for one in found.state_batches] == [(2, 3, AVAILABLE, 2)]


def test_read_of_what_was_never_initialized_is_an_error(state: ShareState) -> None:
    """`read_state` returns nothing if there is no state.

    Differs: the answer is an error, as Kafka's is, so that nobody takes a failure for an empty
    state and delivers everything again.
    """
    assert state.read().error_code == INVALID_REQUEST


def test_read_with_an_older_leader_epoch_is_fenced(state: ShareState) -> None:
    """The leader that reads names its leader epoch; an older one is fenced.

    Differs: the document's persister reads with epoch 0 whoever asks, so it fences nobody.
    """
    state.initialize()
    assert state.read(leader_epoch=5).error_code == 0
    assert state.read(leader_epoch=4).error_code == FENCED_LEADER_EPOCH


def test_read_by_a_new_leader_fences_the_writes_of_the_old_one(state: ShareState) -> None:
    """What a new leader has read, an old leader cannot write any more."""
    state.initialize()
    assert state.read(leader_epoch=1).error_code == 0
    assert state.write(Batch(0, 0, ACKNOWLEDGED, 1), leader_epoch=1) == 0
    assert state.read(leader_epoch=2).error_code == 0
    assert state.write(Batch(1, 1, ACKNOWLEDGED, 1), leader_epoch=1) == FENCED_LEADER_EPOCH


def test_write_keeps_batches_with_state_and_delivery_count(state: ShareState) -> None:
    """`write_state` stores batches: first and last offset, delivery state, delivery count."""
    state.initialize()
    written = [
        Batch(0, 4, ACKNOWLEDGED, 1),
        Batch(5, 5, ARCHIVED, 5),
        Batch(6, 9, AVAILABLE, 2),
    ]
    assert state.write(*written) == 0
    assert state.batches() == written


def test_write_moves_the_start_offset(state: ShareState) -> None:
    """`write_state` stores the start offset; batches below it are forgotten, or cut."""
    state.initialize()
    state.write(Batch(0, 9, ACKNOWLEDGED, 1), Batch(12, 14, AVAILABLE, 2))
    assert state.write(start=5) == 0
    assert state.read().start_offset == 5
    assert state.batches() == [Batch(5, 9, ACKNOWLEDGED, 1), Batch(12, 14, AVAILABLE, 2)]


def test_write_without_a_start_offset_leaves_it(state: ShareState) -> None:
    """A start offset of -1 means unchanged."""
    state.initialize(start=3)
    state.write(Batch(4, 4, ACKNOWLEDGED, 1), start=-1)
    assert state.read().start_offset == 3


def test_write_stores_the_count_of_completed_deliveries(state: ShareState) -> None:
    """`write_state` carries the delivery-complete count, for the lag.

    Differs: it is also read back; the document's persister sets it to 0 when it reads.
    """
    state.initialize()
    state.write(Batch(1, 3, ACKNOWLEDGED, 1), complete=3)
    assert state.summary().delivery_complete_count == 3


def test_write_with_a_lower_state_epoch_is_fenced(state: ShareState) -> None:
    """A write of an older state epoch is fenced; the caller gets the error."""
    state.initialize(state_epoch=2)
    assert state.write(Batch(0, 0, ACKNOWLEDGED, 1), state_epoch=1) == FENCED_STATE_EPOCH
    assert state.batches() == []


def test_write_before_initialize_is_refused(state: ShareState) -> None:
    """There is nothing to write to before `initialize`."""
    assert state.write(Batch(0, 0, ACKNOWLEDGED, 1)) == INVALID_REQUEST


def test_write_of_a_range_that_ends_before_it_starts_is_refused(state: ShareState) -> None:
    """A batch is a range of offsets."""
    state.initialize()
    assert state.write(Batch(3, 2, ACKNOWLEDGED, 1)) == INVALID_REQUEST


def test_writes_of_one_range_combine(state: ShareState) -> None:
    """Writes are deltas: on the same offsets the higher delivery count wins, then the state."""
    state.initialize()
    state.write(Batch(0, 9, AVAILABLE, 2))
    state.write(Batch(3, 5, ACKNOWLEDGED, 2), Batch(6, 6, AVAILABLE, 1))
    assert state.batches() == [
        Batch(0, 2, AVAILABLE, 2),
        Batch(3, 5, ACKNOWLEDGED, 2),
        Batch(6, 9, AVAILABLE, 2),
    ]


def test_neighbours_of_one_kind_become_one_batch(state: ShareState) -> None:
    """Batches that touch and are alike are stored as one."""
    state.initialize()
    state.write(Batch(0, 4, ACKNOWLEDGED, 1))
    state.write(Batch(5, 9, ACKNOWLEDGED, 1))
    assert state.batches() == [Batch(0, 9, ACKNOWLEDGED, 1)]


def test_delete_forgets_the_state(state: ShareState) -> None:
    """`delete` removes the state; nothing can be read or written afterwards."""
    state.initialize()
    assert state.delete() == 0
    assert state.read().error_code == INVALID_REQUEST
    assert state.write(Batch(0, 0, ACKNOWLEDGED, 1)) == INVALID_REQUEST


def test_delete_of_nothing_succeeds(state: ShareState) -> None:
    """`delete` can be repeated."""
    assert state.delete() == 0


def test_a_summary_needs_no_state(state: ShareState) -> None:
    """The summary of what was never initialized says so without an error."""
    found = state.summary()
    assert (found.error_code, found.start_offset, found.delivery_complete_count) == (0, -1, -1)


def test_each_partition_is_decided_alone(broker: EmbeddedBroker, topic: str, group: str) -> None:
    """One request may be about many partitions; one refusal does not spoil the others."""
    name = f"{topic}-wide"
    broker.create_topic(name, partitions=2)
    state = ShareState(broker.bootstrap, group, name)
    state.coordinator()
    data = [initializing.PartitionData(number, 1, 0) for number in (0, 1, 2)]
    request = initializing.InitializeShareGroupStateRequest(
        group, [initializing.InitializeStateData(state.topic_id, data)]
    )
    answer = state.client.ask("initialize_share_group_state", 0, request)
    found = {one.partition: one.error_code for one in answer.results[0].partitions}
    assert found == {0: 0, 1: 0, 2: UNKNOWN_TOPIC_OR_PARTITION}
    state.close()


def test_a_topic_that_does_not_exist_has_no_state(state: ShareState) -> None:
    """The key's topic and partition must be in the metadata."""
    state.topic_id = b"\x01" * 16
    assert state.initialize() == UNKNOWN_TOPIC_OR_PARTITION


def test_a_key_that_names_nothing_is_refused(state: ShareState) -> None:
    """A null topic id or a negative partition is no key."""
    assert state.initialize(partition=-1) == INVALID_REQUEST
    state.topic_id = bytes(16)
    assert state.initialize() == INVALID_REQUEST


def test_a_request_about_nothing_is_answered_with_nothing(state: ShareState) -> None:
    """A request without partitions has no results."""
    request = reading.ReadShareGroupStateRequest(state.group, [])
    assert list(state.client.ask("read_share_group_state", 0, request).results) == []
