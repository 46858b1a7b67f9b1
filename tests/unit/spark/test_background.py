"""What is kept open between the calls of a process."""

from __future__ import annotations

import os
import time

import pytest

from ottla.spark import background as module
from ottla.spark.background import Background, background


class Thing:
    def __init__(self) -> None:
        self.closings: list[float] = []

    async def close(self) -> None:
        self.closings.append(time.monotonic())


def test_things_are_shared_and_those_that_failed_are_not_kept() -> None:
    loop = Background()
    with loop.borrowed("key", Thing) as first, loop.borrowed("key", Thing) as same:
        assert first is same
    with loop.borrowed("key", Thing) as later, loop.borrowed("other", Thing) as another:
        assert later is first is not another
    with pytest.raises(KeyError), loop.borrowed("key", Thing):
        raise KeyError
    assert len(first.closings) == 1
    with loop.borrowed("key", Thing) as fresh:
        assert fresh is not first


def test_idle_things_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    loop = Background()
    with loop.borrowed("key", Thing) as thing:
        time.sleep(0.05)
        assert not thing.closings
    deadline = time.monotonic() + 10
    while len(thing.closings) < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(thing.closings) == 1
    with loop.borrowed("key", Thing) as fresh:
        assert fresh is not thing


def test_a_forked_process_has_a_loop_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = background()
    assert background() is mine
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert background() is not mine
