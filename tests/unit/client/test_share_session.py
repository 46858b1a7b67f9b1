"""A share session against a model of the broker's side of it."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.client.share.session import MAX_EPOCH, Limits, ShareSession, ack_codes, ack_error
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import share_acknowledge
from ottla.wire.schema.share_fetch import (
    AcknowledgementBatch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

A, B = b"a" * 16, b"b" * 16
KEYS = [(A, 0), (A, 1), (B, 0)]
LIMITS = Limits(500, 1000)
ACK = [AcknowledgementBatch(0, 4, [1])]


def test_a_request_names_changes_only() -> None:
    session = ShareSession("g", "m")
    first = session.fetch([(A, 0), (B, 0)], {}, LIMITS, 500)
    assert first.share_session_epoch == 0
    assert [(one.topic_id, len(one.partitions)) for one in first.topics] == [(A, 1), (B, 1)]
    session.answered()
    second = session.fetch([(A, 0), (A, 1)], {(B, 0): ACK}, LIMITS, 500)
    assert second.share_session_epoch == 1
    named = {
        (topic.topic_id, one.partition_index): list(one.acknowledgement_batches)
        for topic in second.topics
        for one in topic.partitions
    }
    assert named == {(A, 1): [], (B, 0): ACK}
    assert [(one.topic_id, one.partitions) for one in second.forgotten_topics_data] == [(B, [0])]
    session.answered()
    third = session.fetch([(A, 0), (A, 1)], {}, LIMITS, 500)
    assert (third.topics, third.forgotten_topics_data) == ([], [])


def test_both_kinds_of_requests_count_and_the_last_epoch_is_followed_by_one() -> None:
    session = ShareSession("g", "m")
    session.fetch(KEYS, {}, LIMITS, 0)
    session.answered()
    assert session.acknowledge({(A, 0): ACK}).share_session_epoch == 1
    session.answered()
    session.epoch = MAX_EPOCH
    assert session.fetch(KEYS, {}, LIMITS, 0).share_session_epoch == MAX_EPOCH
    session.answered()
    assert session.acknowledge({}, closes=True).share_session_epoch == -1
    assert session.epoch == 1


def test_a_partition_that_is_missing_from_the_answer_has_failed() -> None:
    data = [PartitionData(0), PartitionData(1, acknowledge_error_code=42)]
    codes = ack_codes(ShareFetchResponse(responses=[ShareFetchableTopicResponse(A, data)]))
    assert ack_error(codes, (A, 0)) is None
    refused = ack_error(codes, (A, 1))
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_REQUEST
    missing = ack_error(codes, (B, 0))
    assert missing is not None
    assert missing.code == ErrorCode.INVALID_RECORD_STATE
    alone = share_acknowledge.ShareAcknowledgeResponse(
        responses=[
            share_acknowledge.ShareAcknowledgeTopicResponse(
                A, [share_acknowledge.PartitionData(0, ErrorCode.INVALID_RECORD_STATE)]
            )
        ]
    )
    assert ack_codes(alone) == {(A, 0): ErrorCode.INVALID_RECORD_STATE}


wanted_keys = st.sets(st.sampled_from(KEYS))


class Model(RuleBasedStateMachine):
    """The broker keeps an expected epoch and a set; good requests leave it as the client thinks."""

    @initialize()
    def start(self) -> None:
        self.session = ShareSession("g", "m")
        self.expected: int | None = None
        self.held: set[tuple[bytes, int]] = set()

    def serve(self, request: ShareFetchRequest) -> bool:
        """What a broker does with the session of a request; whether it finds it in order."""
        if request.share_session_epoch == 0:
            assert not any(
                one.acknowledgement_batches for topic in request.topics for one in topic.partitions
            )
            self.expected, self.held = 0, set()
        if self.expected is None or request.share_session_epoch != self.expected:
            return False
        self.expected += 1
        for topic in request.topics:
            self.held |= {(topic.topic_id, one.partition_index) for one in topic.partitions}
        for gone in request.forgotten_topics_data:
            self.held -= {(gone.topic_id, index) for index in gone.partitions}
        return True

    @rule(wanted=wanted_keys, acked=wanted_keys)
    def fetch(self, wanted: set[tuple[bytes, int]], acked: set[tuple[bytes, int]]) -> None:
        acks = dict.fromkeys(acked, ACK) if self.session.is_open else {}
        if self.serve(self.session.fetch(wanted, acks, LIMITS, 0)):
            self.session.answered()
            assert self.held == wanted
        else:
            self.session.ended()

    @rule()
    def acknowledge(self) -> None:
        if not self.session.is_open:
            return
        epoch = self.session.acknowledge({(A, 0): ACK}).share_session_epoch
        if epoch == self.expected:
            self.expected += 1
            self.session.answered()
        else:
            self.session.ended()

    @rule(wanted=wanted_keys)
    def lose_an_answer(self, wanted: set[tuple[bytes, int]]) -> None:
        self.serve(self.session.fetch(wanted, {}, LIMITS, 0))
        self.session.ended()

    @rule()
    def broker_forgets(self) -> None:
        self.expected, self.held = None, set()

    @invariant()
    def agree_or_find_out(self) -> None:
        if self.session.is_open and self.session.epoch == self.expected:
            assert self.held == self.session.partitions


TestModel = Model.TestCase
