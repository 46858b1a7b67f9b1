"""What quotas do to requests: counted, told, muted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.access import throttling as throttling_module
from ottla.broker.access.throttling import Throttling
from ottla.broker.errors import ApiError
from ottla.broker.serving.context import Ack, Large, Peer, RequestContext
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.security.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.schema.metadata import MetadataResponse
from ottla.wire.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.schema.write_txn_markers import WriteTxnMarkersResponse
from tests.support.clocks import ManualClock
from tests.unit.broker.test_quotas import image

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCE, FETCH, METADATA = 0, 1, 3


class Bench:
    """Throttling with one client, whose mutes are written down."""

    def __init__(self, **values: float) -> None:
        self.clock = ManualClock(1_000_000)
        self.throttling = Throttling(load_broker_config(), self.clock)
        self.throttling.adopt(image(({USER: "alice"}, values)))
        self.mutes: list[float] = []
        self.client_id = "app"
        self.peer = Peer("127.0.0.1", "PLAINTEXT", "User:alice", mute=self.mutes.append)

    def log_in(self, user: str) -> None:
        """As the dispatcher does (`identify`)."""
        self.peer.principal = f"User:{user}"
        self.peer.metered = None

    def context(self, api_key: int) -> RequestContext:
        return RequestContext(self.peer, api_key, 9, self.client_id)

    def ask(self, api_key: int, request: Any, handler: Callable[..., Any]) -> Any:
        return self.throttling.serve(self.context(api_key), request, handler, ())

    def produce(self, size: int, response: Any = ProduceResponse()) -> Any:  # noqa: B008
        data = PartitionProduceData(0, memoryview(bytes(size)))
        request = ProduceRequest(topic_data=(TopicProduceData("t", partition_data=(data,)),))
        return self.ask(PRODUCE, request, lambda *_: response)

    def fetch(self, size: int) -> Any:
        def handler(context: RequestContext, _: object) -> FetchResponse:
            room = context.fetch_room(self.clock.monotonic())
            if not room:
                return FetchResponse()
            data = PartitionData(0, records=[memoryview(bytes(min(size, room)))])
            return FetchResponse(responses=[FetchableTopicResponse("t", partitions=[data])])

        return self.ask(FETCH, None, handler)


def test_produce_is_told_and_muted_when_it_is_over() -> None:
    bench = Bench(**{PRODUCER_BYTE_RATE: 1000.0})
    assert bench.produce(10_000).throttle_time_ms == 0
    assert bench.mutes == []
    # The clock stands at the begin of a window: 10 seconds count.
    assert bench.produce(5_000).throttle_time_ms == 5000
    assert bench.mutes == [pytest.approx(5.0)]


def test_answers_that_wait_for_a_sync_carry_the_time() -> None:
    bench = Bench(**{PRODUCER_BYTE_RATE: 1.0})
    ack = Ack(ProduceResponse(), [], lambda response, _: response)
    assert bench.produce(100, ack) is ack
    assert ack.response.throttle_time_ms == 90_000
    assert bench.produce(100, None) is None  # acks=0
    assert len(bench.mutes) == 2


async def test_large_answers_carry_the_time_and_others_need_not() -> None:
    bench = Bench(**{REQUEST_PERCENTAGE: 1e-9})

    async def handler(*_: object) -> Large[MetadataResponse]:
        return Large(MetadataResponse())

    told = await bench.ask(METADATA, None, handler)
    assert told.response.throttle_time_ms == 1000  # a window at most
    plain = WriteTxnMarkersResponse()
    assert bench.ask(27, None, lambda *_: plain) is plain
    assert bench.mutes == [1.0, 1.0]


@pytest.mark.parametrize("api_key", [17, 18, 36])
def test_logging_in_has_no_quota(api_key: int) -> None:
    bench = Bench(**{REQUEST_PERCENTAGE: 1e-9})
    bench.ask(api_key, None, lambda *_: MetadataResponse())
    assert bench.mutes == []


def test_a_fetch_over_its_quota_is_empty_and_counts_nothing() -> None:
    bench = Bench(**{CONSUMER_BYTE_RATE: 1000.0})
    taken = 0
    for _ in range(10):
        answer = bench.fetch(4_000)
        size = sum(
            len(chunk)
            for topic in answer.responses
            for data in topic.partitions
            for chunk in data.records
        )
        taken += size
        assert bool(answer.throttle_time_ms) == (size == 0)
    assert 9_000 <= taken <= 10_000
    assert bench.mutes
    bench.clock.advance(12_000)
    assert bench.fetch(4_000).responses


@pytest.mark.parametrize("client_ids", [1, 7, 200])
@pytest.mark.parametrize("size", [10, 1_000, 100_000])
def test_small_requests_that_are_summed_up_reach_the_quota_like_others(
    monkeypatch: pytest.MonkeyPatch, client_ids: int, size: int
) -> None:
    """Under however many client ids, and however fast; all of it within one window."""
    moment = [0]
    monkeypatch.setattr(throttling_module, "perf_counter_ns", lambda: moment[0])
    bench = Bench(**{PRODUCER_BYTE_RATE: 100_000.0})  # one million in ten seconds
    sent = 0
    while not bench.mutes:
        moment[0] += 1_000
        bench.client_id = f"app-{sent // size % client_ids}"
        bench.produce(size)
        sent += size
    assert 1_000_000 < sent <= 1_000_000 + size


def test_what_was_summed_up_is_told_when_another_request_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moment = [0]
    monkeypatch.setattr(throttling_module, "perf_counter_ns", lambda: moment[0])
    bench = Bench(**{PRODUCER_BYTE_RATE: 1_000_000.0})
    bench.produce(1)
    bench.produce(5_000)
    client = bench.peer.metered
    assert client is not None
    assert client.bytes == 5_000
    moment[0] += 11_000_000
    bench.produce(7)
    assert client.bytes == 0


async def test_time_in_which_a_request_is_parked_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0]
    monkeypatch.setattr(throttling_module, "perf_counter_ns", lambda: now[0])
    bench = Bench(**{REQUEST_PERCENTAGE: 10.0})  # of ten seconds: one

    async def handler(*_: object) -> MetadataResponse:
        now[0] += 500_000_000
        parked = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(wake, parked)
        await parked
        now[0] += 600_000_000
        return MetadataResponse()

    def wake(parked: asyncio.Future[None]) -> None:
        now[0] += 3600 * 10**9
        parked.set_result(None)

    answer = await bench.ask(METADATA, None, handler)
    # 1.1 seconds of 10 were used, and 1 is allowed: 1.1 / 0.1 - 10 seconds, at most one window.
    assert answer.throttle_time_ms == 1000
    assert bench.mutes == [pytest.approx(1.0)]


async def test_a_cancelled_request_is_cancelled_within() -> None:
    bench = Bench(**{REQUEST_PERCENTAGE: 10.0})
    seen: list[str] = []

    async def handler(*_: object) -> MetadataResponse:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return MetadataResponse()

    task = asyncio.ensure_future(bench.ask(METADATA, None, handler))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_errors_of_a_parked_request_get_through() -> None:
    bench = Bench(**{REQUEST_PERCENTAGE: 10.0})

    async def handler(*_: object) -> None:
        await asyncio.sleep(0)
        raise ApiError(ErrorCode.INVALID_REQUEST)

    with pytest.raises(ApiError):
        await bench.ask(METADATA, None, handler)


def test_74_changed_quotas_end_mutes_at_once() -> None:
    bench = Bench(**{PRODUCER_BYTE_RATE: 1.0})
    bench.produce(1000)
    bench.throttling.adopt(image(({USER: "alice"}, {PRODUCER_BYTE_RATE: 1000.0})))
    assert bench.mutes[-1] == 0.0
    assert bench.produce(1).throttle_time_ms == 0
    bench.throttling.adopt({})
    assert not bench.throttling.active


def test_a_closed_connection_is_forgotten() -> None:
    bench = Bench(**{PRODUCER_BYTE_RATE: 1.0})
    bench.produce(1000)
    bench.throttling.connection_closed(bench.peer.connection_id)
    bench.throttling.adopt({})
    assert len(bench.mutes) == 1


def test_a_connection_that_logs_in_or_changes_its_client_id_is_measured_anew() -> None:
    bench = Bench(**{PRODUCER_BYTE_RATE: 1.0})
    bench.log_in("ANONYMOUS")
    assert bench.produce(1000).throttle_time_ms == 0
    bench.log_in("alice")
    assert bench.produce(1000).throttle_time_ms > 0
    quotas = image(({CLIENT_ID: "app"}, {PRODUCER_BYTE_RATE: 1.0}))
    bench.throttling.adopt(quotas)
    bench.client_id = "another"
    assert bench.produce(1000).throttle_time_ms == 0
    bench.client_id = "app"
    assert bench.produce(1000).throttle_time_ms > 0


def test_nodes_have_no_quotas() -> None:
    bench = Bench(**{PRODUCER_BYTE_RATE: 1.0})
    bench.throttling.adopt(image(({USER: None}, {PRODUCER_BYTE_RATE: 1.0})))
    bench.log_in("__node")
    assert bench.produce(1000).throttle_time_ms == 0
    bench.log_in("bob")
    assert bench.produce(1000).throttle_time_ms > 0


def test_changes_of_topics_are_refused_or_slowed_down() -> None:
    bench = Bench(**{CONTROLLER_MUTATION_RATE: 1.0})
    now = bench.clock.monotonic()

    def handler(context: RequestContext, strict: bool) -> MetadataResponse:
        with context.charged(20, now, strict=strict):
            return MetadataResponse()

    assert bench.ask(19, True, handler).throttle_time_ms == 0
    with pytest.raises(ApiError) as raised:
        bench.ask(19, True, handler)
    assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert bench.ask(19, False, handler).throttle_time_ms == 29_000
    with bench.context(19).charged(1000, now, strict=True):
        pass  # without quotas


def test_changes_that_are_not_made_do_not_count() -> None:
    bench = Bench(**{CONTROLLER_MUTATION_RATE: 1.0})
    now = bench.clock.monotonic()

    def handler(context: RequestContext, _: object) -> MetadataResponse:
        with suppress(ApiError), context.charged(100, now, strict=True):
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS)
        return MetadataResponse()

    for _ in range(3):
        assert bench.ask(19, None, handler).throttle_time_ms == 0
