"""A child process of the demo: `python -m ottla.demo.child ROLE STAGE DIES_AFTER NAME`.

Its standard input is a pipe that only the parent holds. When it closes, the child ends: asked to,
or because the parent is gone, whatever took it away. A child that does not manage to end in time is
ended. `DIES_AFTER` is the number of records after which it crashes on purpose; 0 is never.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from ottla.demo.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import NoReturn

CRASHED: Final = 42  # the status of a crash on purpose
TOO_SLOW: Final = 3  # of a child that was asked to end and did not
END_WITHIN_SECONDS: Final = 15.0


def crash() -> NoReturn:
    """Exit at once, as in a power cut: nothing is flushed or closed."""
    os._exit(CRASHED)


def watch_parent(on_end: Callable[[], object]) -> None:
    """Call this in a thread when the parent asks the child to end, or has died."""

    def watch() -> None:
        # The descriptor itself: a thread in sys.stdin.read would hold its lock at exit.
        while os.read(0, 1):
            pass
        timer = threading.Timer(END_WITHIN_SECONDS, os._exit, (TOO_SLOW,))
        timer.daemon = True
        timer.start()
        on_end()

    threading.Thread(target=watch, name="demo-parent", daemon=True).start()


def run_until_end(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run this in an event loop; the event is set when the parent asks it to end."""

    async def run() -> None:
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        watch_parent(lambda: loop.call_soon_threadsafe(ending.set))
        await work(ending)

    asyncio.run(run())


def main(arguments: list[str]) -> None:
    role, stage_text, dies_after, name = arguments
    stage = Stage.from_json(stage_text)
    match role:
        case "nodes":
            from ottla.demo.nodes import serve

            serve(stage)
        case "worker":
            from ottla.demo.workers import work

            run_until_end(lambda ending: work(stage, name, int(dies_after), ending))
        case "ledger":
            from ottla.demo.ledger import keep_books

            run_until_end(lambda ending: keep_books(stage, int(dies_after), ending))
        case "pipeline":
            from ottla.demo.pipeline import run_pipeline

            run_pipeline(stage)
        case _:
            raise ValueError(f"no such role: {role}")


if __name__ == "__main__":
    main(sys.argv[1:])
