"""Spark over SASL_SSL: sources and sinks work, and a secret shows nowhere (case 106)."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ottla
from tests.support.spark_canary import COUNT
from tests.support.spark_tier import upload_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "canary-" + secrets.token_hex(16)
ARCHIVED = 160


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[ottla.EmbeddedBroker]:
    config = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    secured = ottla.Secured(users={"alice": CANARY})
    with ottla.EmbeddedBroker(data, security=secured, config=config) as broker:
        broker.create_topic("archived")
        alice = broker.security("alice")
        with ottla.sync.Producer(broker.bootstrap, security=alice) as producer:
            for _ in range(8):
                records = [
                    ottla.ProducerRecord(b"%100d" % number) for number in range(ARCHIVED // 8)
                ]
                producer.send_many("archived", records)
        yield broker


@pytest.mark.parametrize("way", ["plain", "jaas", "file", "env"])
def test_all_of_spark_over_sasl_ssl_case_106(
    broker: ottla.EmbeddedBroker, data: Path, tmp_path: Path, way: str
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ends = upload_topic(
        broker, data, "archived", f"file://{tmp_path}/store", scratch, broker.security("alice")
    )
    assert 0 < ends[0] < ARCHIVED  # some from the store, some from the broker
    for topic in ("written", "copied"):
        broker.create_topic(topic)
    held = tmp_path / "secrets"
    held.mkdir()
    (held / "password").write_text(CANARY)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")
    }
    environment |= {"OTTLA_SECRET_DIRS": str(held)}
    if way == "env":
        environment["OTTLA_SECRET_PASSWORD"] = CANARY
    log = tmp_path / "log"
    command = [sys.executable, "-m", "tests.support.spark_canary", broker.bootstrap]
    command += [str(broker.ca_file), str(tmp_path), way]
    with log.open("wb") as into:
        subprocess.run(
            command,
            input=CANARY.encode() + b"\n",
            stdout=into,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=400,
            check=False,
        )
    text = log.read_text(errors="replace")
    [told] = [one for one in text.splitlines() if one.startswith("RESULT ")]
    found = json.loads(told.removeprefix("RESULT "))
    try:
        assert (found["read"], found["copied"], found["shared"]) == (COUNT, COUNT, COUNT)
        assert found["archived"] == ARCHIVED
        assert "cannot log in as 'nobody'" in found["error"]
        assert found["pages"] == 9
        (held / "password").unlink()
        shown = [
            str(path.relative_to(tmp_path))
            for path in tmp_path.rglob("*")
            if path.is_file() and CANARY.encode() in path.read_bytes()
        ]
        assert shown == [], _around(text)
    finally:
        for topic in ("written", "copied"):
            broker.delete_topic(topic)


def _around(text: str) -> str:
    """Where it stands, without it."""
    places = [one for one in text.splitlines() if CANARY in one][:5]
    return "\n".join(one.replace(CANARY, "CANARY")[:600] for one in places)
