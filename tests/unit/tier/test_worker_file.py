"""A file is never closed under the worker that uses it."""

from __future__ import annotations

import asyncio
import threading
from io import FileIO
from typing import TYPE_CHECKING

import pytest

from ottla.objects import local
from ottla.objects.files import WorkerFile
from ottla.objects.local import LocalStore
from tests.support.gates import Gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def test_whoever_is_inside_closes_it(tmp_path: Path) -> None:
    seen: list[FileIO] = []
    inside, leave = threading.Event(), threading.Event()
    file = WorkerFile(lambda: FileIO(tmp_path / "f", "xb"), (tmp_path / "f").unlink)

    def work(opened: FileIO) -> None:
        seen.append(opened)
        inside.set()
        assert leave.wait(60)

    worker = threading.Thread(target=file.use, args=(work,))
    worker.start()
    assert inside.wait(60)
    file.close()
    assert not seen[0].closed
    assert (tmp_path / "f").exists()
    leave.set()
    worker.join()
    assert seen[0].closed
    assert not (tmp_path / "f").exists()
    with pytest.raises(OSError, match="given up"):
        file.use(work)
    file.close()


def test_one_that_was_never_used_is_never_opened(tmp_path: Path) -> None:
    WorkerFile(lambda: FileIO(tmp_path / "f", "xb")).close()
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("call", ["_write", "_sync_directory"])
async def test_a_cancelled_upload_keeps_its_file_until_its_worker_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A worker that writes must not find that its descriptor is another file by now."""
    gate = Gate()
    seen: list[FileIO] = []
    really = getattr(local, call)

    def held(*args: object) -> object:
        seen.extend(one for one in args if isinstance(one, FileIO))
        gate.stop()
        return really(*args)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"data"

    monkeypatch.setattr(local, call, held)
    upload = asyncio.create_task(LocalStore(tmp_path / "store").put_pieces("a/b", pieces()))
    await gate.wait()
    upload.cancel()
    await asyncio.wait([upload])
    assert upload.cancelled()
    assert not any(file.closed for file in seen)
    gate.open()
    async with asyncio.timeout(60):
        while list(tmp_path.rglob("*.tmp")) or not all(file.closed for file in seen):  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)
