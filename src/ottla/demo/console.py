"""The web console shows the same figures as the topics have: its JSON is asked, as a script would.

It is a process of its own, which the broker starts at the first question. What it shows has an age,
so it is asked again until it agrees, or until its time is over.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from ottla.demo.stage import ORDERS, WAREHOUSE_GROUP

if TYPE_CHECKING:
    from ottla.demo.stage import Stage

CLUSTER: Final = "local"
PATIENCE_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 10.0


class Shown(NamedTuple):
    """What the console tells: records of the orders, lag of the warehouse, active nodes."""

    orders: int | None = None
    lag: int | None = None
    nodes: int | None = None


async def ask(stage: Stage, wanted: Shown) -> Shown:
    """What it shows; asked until that is what is wanted, for a while."""
    shown = Shown()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while shown != wanted:
                shown = await asyncio.to_thread(_look, stage)
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        pass
    return shown


def _look(stage: Stage) -> Shown:
    try:
        topic = _get(stage, f"topics/{ORDERS}")
        queue = _get(stage, f"queues/{WAREHOUSE_GROUP}")
        nodes = _get(stage, "nodes")
    except (HTTPError, URLError, TimeoutError):  # its first sample is not there yet
        return Shown()
    return Shown(
        None if topic["row"] is None else topic["row"]["records"],
        None if queue["row"] is None else queue["row"]["lag_records"],
        sum(node["state"] == "active" for node in nodes["nodes"]),
    )


def _get(stage: Stage, path: str) -> Any:
    url = f"{stage.console}api/v1/c/{CLUSTER}/{path}"
    with urlopen(url, timeout=ANSWER_SECONDS) as answer:
        return json.load(answer)
