"""Kill the broker during registrations: case 19."""

from __future__ import annotations

import http.client
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.faults_broker import BrokerProcess
from tests.support.ports import free_port
from tests.support.registry_http import ask
from tests.support.sizes import SOAK

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 50 if SOAK else 12
WRITERS = 3


class Writer(threading.Thread):
    """Registers one schema after the other, and keeps what it was answered."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._named = name
        self.answered: dict[str, int] = {}
        self.ends = threading.Event()

    def run(self) -> None:
        count = 0
        while not self.ends.is_set():
            count += 1
            text = f'{{"type":"fixed","name":"{self._named}_{count}","size":{count}}}'
            body = {"schema": text}
            path = f"/subjects/{self._named}{count % 5}/versions"
            try:
                answer = ask(self._url, "POST", path, body)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
                continue
            if answer.status == 200:
                self.answered[text] = answer.body["id"]


@pytest.mark.long
def test_case_19_what_was_answered_is_there_and_no_id_is_given_twice(tmp_path: Path) -> None:
    source = random.Random(19)
    registry = free_port()
    url = f"http://127.0.0.1:{registry}"
    config = {
        "ottla.registry.listener": url,
        "ottla.registry.compatibility": "NONE",
        "log.cleaner.backoff.ms": "50",
    }
    broker = BrokerProcess(tmp_path, config=config)
    answered: dict[str, int] = {}
    for round_number in range(ROUNDS):
        broker.start()
        writers = [Writer(url, f"r{round_number}w{number}") for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + 30
        while not any(writer.answered for writer in writers):  # the first parse starts a process
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(source.random() / 10)
        broker.kill()
        for writer in writers:
            writer.ends.set()
        for writer in writers:
            writer.join(60)
            answered |= writer.answered
    broker.start()
    listed = ask(url, "GET", "/schemas").body
    texts: dict[int, str] = {}
    for one in listed:
        assert texts.setdefault(one["id"], one["schema"]) == one["schema"]
    found = {text: number for number, text in texts.items()}
    assert len(found) == len(texts), "one id for a schema"
    assert len(answered) > ROUNDS
    assert {text: found.get(text) for text in answered} == answered
    assert broker.stop() == 0
