"""What a worker says while its broker is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.client.errors import BrokerUnreachable, ClientError, ConnectionLost, TlsFailed
from ottla.tables import worker as module
from ottla.tables.settings import worker_settings
from ottla.tables.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

AWAY = BrokerUnreachable("cannot connect to h:1: refused")


class Answers:
    """Fails with each error in turn, then succeeds; at the end, the loop is cancelled."""

    def __init__(self, errors: Sequence[ClientError | None]) -> None:
        self._errors = list(errors)

    async def connect(self) -> None:
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error

    async def enabled(self, _: object) -> dict[str, object]:
        if not self._errors:
            raise asyncio.CancelledError
        await self.connect()
        return {}


def worker_of(directory: Path, answers: Answers, *, patient: bool = True) -> Worker:
    settings = worker_settings(f"file://{directory}", "sqlite://", "ottla", {}, None)
    worker = Worker("h:1", settings, patient=patient)
    worker.admin.connect = answers.connect  # type: ignore[method-assign]
    worker._enabled = answers.enabled  # type: ignore[method-assign, assignment]
    return worker


SAID = ["trying until the broker is back: cannot connect to h:1: refused", "the broker is back"]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECONNECT", 0)
    monkeypatch.setattr(module, "DISCOVERY", 0)


def test_a_worker_waits_for_its_broker_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        await worker_of(tmp_path, Answers([AWAY, AWAY, ConnectionLost("h:1 closed it")]))._reach()

    asyncio.run(run())
    assert caplog.messages == SAID


@pytest.mark.parametrize(("error", "patient"), [(AWAY, False), (TlsFailed("no such CA"), True)])
def test_what_a_worker_does_not_wait_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: ClientError, patient: bool
) -> None:
    async def run() -> None:
        with pytest.raises(type(error)):
            await worker_of(tmp_path, Answers([error]), patient=patient)._reach()

    asyncio.run(run())
    assert caplog.messages == []


def test_a_broker_that_goes_and_comes_is_told_once_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            await worker_of(tmp_path, Answers([None, AWAY, AWAY, None, None, AWAY, None])).run()

    asyncio.run(run())
    assert caplog.messages == SAID * 2
