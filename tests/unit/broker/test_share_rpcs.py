"""Questions to a share coordinator elsewhere: one RPC of a kind at a time, the rest together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from ottla.broker.running.peers import PeerUnreachable
from ottla.broker.shares.rpcs import RemoteCoordinators
from ottla.coordination.share_state import messages as m
from ottla.coordination.share_state.records import ShareKey
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import write_share_group_state as write

if TYPE_CHECKING:
    from ottla.coordination.groups.topics import TopicsImage

TOPIC = UUID(int=7)
NO_TOPICS = cast("TopicsImage", None)


class Peer:
    """Holds each request until it is let go; then answers what it is told to."""

    def __init__(self) -> None:
        self.requests: list[list[tuple[str, int, int]]] = []
        self.held: list[asyncio.Future[None]] = []
        self.without: set[int] = set()

    async def ask(self, node_id: int, request: Any, version: int) -> Any:
        rows = [
            (request.group_id, data.partition, data.start_offset)
            for topic in request.topics
            for data in topic.partitions
        ]
        self.requests.append(rows)
        held = asyncio.get_running_loop().create_future()
        self.held.append(held)
        await held
        answered = [
            write.PartitionResult(partition, ErrorCode.NONE)
            for _, partition, _ in rows
            if partition not in self.without
        ]
        results = [write.WriteStateResult(TOPIC.bytes, answered)]
        return write.WriteShareGroupStateResponse(results)


def question(partition: int, start: int = 0, group: str = "g") -> m.WriteState:
    return m.WriteState(ShareKey(group, TOPIC, partition), NO_TOPICS, 0, 0, start, ())


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_asked_meanwhile_goes_out_together() -> None:
    peer = Peer()
    remote = RemoteCoordinators(peer)  # type: ignore[arg-type]  # a peer as far as it is used

    def ask(*args: Any, node: int = 2) -> asyncio.Task[m.StateResponse]:
        return asyncio.ensure_future(remote.ask(node, question(*args), m.StateResponse))

    first = ask(0)
    await turns()
    later = [ask(1), ask(0, 5), ask(2), ask(0, 6), ask(1, 0, "other")]
    await turns()
    assert peer.requests == [[("g", 0, 0)]]
    ask(0, node=3)
    await turns()
    assert peer.requests[1:] == [[("g", 0, 0)]]  # another node is another matter
    peer.held[0].set_result(None)
    assert (await first).error is ErrorCode.NONE
    for expected in (
        [("g", 1, 0), ("g", 0, 5), ("g", 2, 0)],
        [("g", 0, 6)],  # the same share-partition again: in order, so not together
        [("other", 1, 0)],
    ):
        await turns()
        assert peer.requests[-1] == expected
        peer.held[-1].set_result(None)
    assert [(await one).error for one in later] == [ErrorCode.NONE] * 5
    peer.held[1].set_result(None)


async def test_a_question_that_is_not_answered_fails_alone() -> None:
    peer = Peer()
    peer.without = {1}
    remote = RemoteCoordinators(peer)  # type: ignore[arg-type]  # a peer as far as it is used
    asked = [
        asyncio.ensure_future(remote.ask(2, question(index), m.StateResponse)) for index in (0, 1)
    ]
    await turns()
    assert len(peer.requests) == 1
    peer.held[0].set_result(None)
    assert (await asked[0]).error is ErrorCode.NONE
    with pytest.raises(PeerUnreachable, match="without a share-partition"):
        await asked[1]


async def test_a_peer_that_is_away_fails_what_was_sent_and_is_tried_with_the_rest() -> None:
    peer = Peer()
    remote = RemoteCoordinators(peer)  # type: ignore[arg-type]  # a peer as far as it is used
    first = asyncio.ensure_future(remote.ask(2, question(0), m.StateResponse))
    await turns()
    second = asyncio.ensure_future(remote.ask(2, question(1), m.StateResponse))
    gone = asyncio.ensure_future(remote.ask(2, question(2), m.StateResponse))
    await turns()
    gone.cancel()
    peer.held[0].set_exception(PeerUnreachable("node 2 is not up"))
    with pytest.raises(PeerUnreachable, match="not up"):
        await first
    await turns()
    peer.held[1].set_result(None)
    assert (await second).error is ErrorCode.NONE
