"""The processes below one of ours, and a look at them again and again."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def descendants(root: int) -> dict[int, bytes]:
    """The processes below one, with their commands."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found: dict[int, bytes] = {}
    for pid in sorted(parents):
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and pid != root:
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return found


def pythons_below(root: int) -> dict[int, bytes]:
    """Those of Spark that are no JVM."""
    return {
        pid: command
        for pid, command in descendants(root).items()
        if b"java" not in command.split(b"\0")[0]
    }


@contextmanager
def watching(look: Callable[[], None], every: float) -> Iterator[None]:
    """Look once in so many seconds while the block runs."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(every):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
