"""A broker that is killed once: with the dead letters durable, and their records not yet given up.

The first life writes a mark beside its data directory before it ends; a life that finds it lives.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from ottla.broker.shares.dead_letters import DeadLetters
from tests.support.faults_broker import main


def die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die_after_letters(mark: Path) -> None:
    write = DeadLetters.write

    async def write_and_die(self: DeadLetters, *letters: Any) -> None:
        await write(self, *letters)
        die_once(mark)

    setattr(DeadLetters, "write", write_and_die)  # noqa: B010  # mypy knows it as a method


if __name__ == "__main__":
    die_after_letters(Path(sys.argv[1]).parent / "died")
    main(*sys.argv[1:])
