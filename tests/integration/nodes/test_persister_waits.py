"""A question about share state waits for its coordinator as long as that is away, and no longer."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from ottla.broker.shares import persister
from ottla.coordination.share_state import messages as m
from ottla.coordination.share_state.records import ShareKey
from ottla.metadata.image import NO_LEADER
from ottla.metadata.names import SHARE_GROUP_STATE_TOPIC
from ottla.wire.error_codes import ErrorCode
from tests.support.share_nodes import Nodes, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """The state of the group that `read` asks for has no leader."""
    nodes = Nodes(tmp_path)
    try:
        nodes.start(1)
        nodes.start(2)
        wait_for(lambda: len(nodes.running[1].image.brokers) == 2)
        nodes.make_topics()
        nodes.set_leader(SHARE_GROUP_STATE_TOPIC, 1, NO_LEADER, by=1)
        yield nodes
    finally:
        nodes.close()


def read(nodes: Nodes) -> m.ReadState:
    groups = nodes.running[1].services.groups()
    return m.ReadState(ShareKey(nodes.new_group(), nodes.topic_id, 0), groups.topics, 0)


def test_a_new_leader_is_asked_at_once(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked after 1, 3, 7 and 15 s, and members of the group got nothing meanwhile."""
    monkeypatch.setattr(persister, "FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(persister, "LONGEST_PAUSE_SECONDS", 3600.0)
    asking = nodes.do(nodes.running[1].services.persister)
    asked: list[int] = []
    ask_once = asking._ask_once

    async def counted(request: m.KeyedRequest, expect: type[m.ReadStateResponse]) -> object:
        answer = await ask_once(request, expect)
        asked.append(asking._leader(request.key))
        return answer

    monkeypatch.setattr(asking, "_ask_once", counted)

    async def begin() -> asyncio.Future[m.ReadStateResponse]:
        question: asyncio.Future[m.ReadStateResponse] = asyncio.ensure_future(
            asking.ask(read(nodes), m.ReadStateResponse)
        )
        return question

    question: asyncio.Future[m.ReadStateResponse] = nodes.call(begin())
    wait_for(lambda: asked == [NO_LEADER])
    nodes.set_leader(SHARE_GROUP_STATE_TOPIC, 1, 2, by=1)
    wait_for(lambda: asked[1:2] == [2])
    nodes.do(question.cancel)


def test_the_answer_comes_when_patience_has_ended(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persister, "PATIENCE_SECONDS", 0.0)
    asking = nodes.do(nodes.running[1].services.persister)
    answer = nodes.call(asking.ask(read(nodes), m.ReadStateResponse))
    assert answer.error == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_write_that_waits_for_others_has_no_patience_of_its_own(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members give their requests up after 30 s: two writes took that long, one after the other."""
    asking = nodes.do(nodes.running[1].services.persister)
    until: list[float] = []

    async def fails(deadline: float, request: m.KeyedRequest, expect: object) -> m.StateResponse:
        until.append(deadline)
        return m.StateResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    monkeypatch.setattr(asking, "_ask_until", fails)
    question = read(nodes)
    write = m.WriteState(question.key, question.topics, 0, 0, 0, (), 0)

    async def both() -> float:
        writes = [asking.write(write), asking.write(write)]
        asked_at = asyncio.get_running_loop().time()
        await asyncio.gather(*(answer() for answer in writes))
        return asked_at

    asked_at = nodes.call(both())
    assert len(until) == 2
    assert max(until) <= asked_at + persister.PATIENCE_SECONDS


def test_a_write_need_not_be_waited_for(nodes: Nodes) -> None:
    """A stop drops the answer. It was a coroutine, which Python warns of when nobody awaits it."""
    asking = nodes.do(nodes.running[1].services.persister)
    nodes.set_leader(SHARE_GROUP_STATE_TOPIC, 1, 1, by=1)
    question = read(nodes)
    write = m.WriteState(question.key, question.topics, 0, 0, 0, (), 0)
    nodes.call(asking.ask(question, m.ReadStateResponse))  # loads the partition

    def drop() -> bool:
        asking.write(write)
        return question.key in asking._writing

    is_elsewhere = nodes.do(drop)
    gc.collect()
    assert not is_elsewhere
