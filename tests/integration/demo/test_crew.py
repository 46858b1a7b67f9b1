"""Children that end without being asked to are a failure that says which, how and where to look."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.demo.crew import Child, ChildFailed, Crew
from ottla.demo.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(str(tmp_path), 1000, 1, 0, bootstrap="127.0.0.1:1")
    made.logs.mkdir()
    return made


async def test_a_child_that_fails_is_told_with_its_last_words(stage: Stage) -> None:
    crew = Crew(on_crash=lambda child: None)
    crew.add(Child(stage, "nobody", "the-child", ()))
    async with asyncio.timeout(60):
        with pytest.raises(ChildFailed, match=r"the-child ended with status 1.*no such role"):
            await crew.watch()
    assert crew.running == []


async def test_a_child_is_killed_whatever_it_does(stage: Stage) -> None:
    crew = Crew(on_crash=lambda child: None)
    crew.add(Child(stage, "ledger", "ledger", ()))
    assert crew.running == ["ledger"]
    crew.kill()
    assert crew.running == []


async def test_a_child_that_does_not_end_in_time_is_named_and_killed(stage: Stage) -> None:
    crew = Crew(on_crash=lambda child: None)
    crew.add(Child(stage, "ledger", "ledger", ()))
    assert await crew.end(patience=0) == ["ledger"]
    assert crew.running == []


def test_a_stage_goes_to_children_as_text(stage: Stage) -> None:
    assert Stage.from_json(stage.to_json()) == stage
