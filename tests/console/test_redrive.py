"""Dead letters: the page, and sending them again exactly once."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from ottla.client.producer.types import ProducerRecord
from ottla.clock import SYSTEM
from ottla.console import redrive
from ottla.console.clusters import ClusterSettings as Cluster
from ottla.console.letters import REDRIVE_TOPIC, Place
from ottla.console.redrive import Plan, Progress
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.sync import Admin, Producer, Reader, ShareConsumer
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.reader.types import Record

pytestmark = pytest.mark.long
URL = "http://127.0.0.1:9095"
WAIT = 60.0
ENABLE = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def queue(broker: EmbeddedBroker, group: str, topic: str, partitions: int = 1) -> str:
    """A queue with a topic for its letters, which is returned."""
    letters = f"dlq.{topic}"
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions)
        admin.create_topic(letters, partitions, configs=ENABLE)
        admin.alter_configs("group", group, {"errors.deadletterqueue.topic.name": letters})
    return letters


def headers(group: str, topic: str, offset: int, *, partition: int = 0) -> list[tuple[str, bytes]]:
    return [
        ("__dlq.errors.topic", topic.encode()),
        ("__dlq.errors.partition", b"%d" % partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", group.encode()),
        ("__dlq.errors.delivery.count", b"5"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]


def records(broker: EmbeddedBroker, topic: str) -> list[Record]:
    with Reader(broker.bootstrap, topic, stop="latest", isolation_level="read_committed") as reader:
        return list(reader.records())


def run(broker: EmbeddedBroker, plan: Plan) -> Progress:
    progress = Progress(len(plan.places))
    asyncio.run(redrive.run(Cluster("local", broker.bootstrap), plan, progress, SYSTEM))
    return progress


def test_case_56_a_redrive_that_is_killed_and_repeated_sends_each_letter_once(
    broker: EmbeddedBroker,
) -> None:
    letters = queue(broker, "w56", "orders56")
    count = 600
    with Producer(broker.bootstrap) as producer:
        producer.send_many(
            letters,
            [
                ProducerRecord(b"v%d" % number, b"k%d" % number, headers("w56", "orders56", number))
                for number in range(count)
            ],
        )
    command = ["share-group", "redrive", "w56", "--execute", "--rate", "50"]
    child = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", *command, "--bootstrap", broker.bootstrap],
        stdout=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + WAIT
        while len(records(broker, "orders56")) < 200:
            assert child.poll() is None or len(records(broker, "orders56")) >= 200
            assert time.monotonic() < until
    finally:
        child.kill()
        child.wait()
    places = tuple(Place(0, number) for number in range(count))
    progress = run(broker, Plan("w56", letters, places, rate=100_000))
    assert progress.done + progress.passed == count
    assert progress.passed >= 200
    found = records(broker, "orders56")
    assert sorted(one.value or b"" for one in found) == sorted(b"v%d" % n for n in range(count))
    entries = [
        one
        for one in records(broker, REDRIVE_TOPIC)
        if (one.key or b"").startswith(b"dlq.orders56")
    ]
    assert sorted(one.key or b"" for one in entries) == sorted(
        b"dlq.orders56-0@%d" % number for number in range(count)
    )
    again = run(broker, Plan("w56", letters, places, rate=100_000))
    assert (again.done, again.passed) == (0, count)
    assert len(records(broker, "orders56")) == count


def test_case_57_letters_without_a_copy_redriven_too_often_or_of_a_deleted_topic(
    broker: EmbeddedBroker,
) -> None:
    letters = queue(broker, "w57", "orders57", 2)
    with Producer(broker.bootstrap) as producer:
        producer.send("orders57", b"original", key=b"k", headers=[("source", b"web")], partition=1)
        for sent in (
            ProducerRecord(None, None, headers("w57", "orders57", 0, partition=1)),
            ProducerRecord(None, None, headers("w57", "orders57", 99, partition=1)),
            ProducerRecord(
                b"often", b"k", [*headers("w57", "orders57", 0), ("ottla.redrive.count", b"5")]
            ),
            ProducerRecord(b"lost", b"k", headers("w57", "deleted57", 0)),
            ProducerRecord(b"no letter"),
        ):
            producer.send_many(letters, [sent._replace(partition=0)])
    places = tuple(Place(0, number) for number in range(5))
    progress = run(broker, Plan("w57", letters, places, same_partition=True))
    assert progress.done == 1
    refused = {one.letter.rpartition("@")[2]: one.reason for one in progress.refused}
    assert "orders57-1@99 is gone" in refused["1"]
    assert "force it" in refused["2"]
    assert "topic deleted57 does not exist any more; choose another topic" in refused["3"]
    assert "no dead letter" in refused["4"]
    [_, sent_again] = [one for one in records(broker, "orders57") if one.partition == 1]
    assert (sent_again.value, sent_again.key) == (b"original", b"k")
    assert dict(sent_again.headers) == {
        "source": b"web",
        "ottla.redrive.from": b"dlq.orders57-0@0",
        "ottla.redrive.count": b"1",
    }
    forced = Plan("w57", letters, places[2:4], to="orders57", force=True)
    assert run(broker, forced).done == 2
    assert run(broker, forced).passed == 2  # the same plan repeats nothing, although forced
    values = [one.value or b"" for one in records(broker, "orders57")]
    assert sorted(values) == [b"lost", b"often", b"original", b"original"]
    dismissed = run(broker, Plan("w57", letters, places[1:2], dismiss=True))
    assert dismissed.done == 1
    assert len(records(broker, "orders57")) == len(values)


def test_case_55_the_page_groups_letters_and_redrives_them_as_previewed(
    broker: EmbeddedBroker,
) -> None:
    letters = queue(broker, "w55", "orders55")
    with Producer(broker.bootstrap) as producer:
        producer.send_many(
            "orders55", [ProducerRecord(b"order %d" % number) for number in range(4)]
        )
    with ShareConsumer(
        broker.bootstrap,
        group="w55",
        topics=["orders55"],
        ack_mode="explicit",
        auto_offset_reset="earliest",
    ) as worker:
        left = 4
        while left:
            for one in worker.poll(timeout=WAIT):
                worker.acknowledge(one, "reject" if one.offset < 3 else "accept")
                left -= 1
            worker.commit()
    settings = Settings(
        write=True, clusters=(ClusterSettings("local", broker.bootstrap, write=True),)
    )
    with TestClient(make_app(settings), base_url=URL, headers={"origin": URL}) as client:
        path = "/c/local/queues/w55/letters"
        until = time.monotonic() + WAIT
        while "rejected</bdi></a> <b>3</b>" not in (page := client.get(path).text):
            assert time.monotonic() < until, page
        assert f">{letters}<" in page.replace("<bdi>", "").replace("</bdi>", "")
        assert "/c/local/topics/orders55/messages/0/1" in page
        token = re.search(r'name="token" value="([^"]+)"', page)
        assert token is not None
        form = {"token": token[1], "l:0@0": "1", "l:0@2": "1", "how": "key"}
        assert client.post(f"{path}/redrive-preview", data={"token": token[1]}).status_code == 400
        seen = client.post(f"{path}/redrive-preview", data=form).text
        assert "<b>2</b> letter(s) are sent to" in seen
        plan = re.search(r'name="plan" value="([^"]+)"', seen)
        assert plan is not None
        forged = client.post(f"{path}/redrive", data={"token": token[1], "plan": f"0{plan[1]}"})
        assert forged.status_code == 409
        done = {"token": token[1], "plan": plan[1]}
        client.post(f"{path}/redrive", data=done)
        while "Redrive done" not in (page := client.get(path).text):
            assert "Redrive failed" not in page, page
            assert time.monotonic() < until, page
        assert len(re.findall("redriven <time", page)) == 2
        # The same form again: nothing more is sent.
        client.post(f"{path}/redrive", data=done)
        while "2 were dealt with before" not in (page := client.get(path).text):
            assert time.monotonic() < until, page
        view = client.get("/api/v1/c/local/queues/w55/letters").json()
        assert view["letters"]["total"] == 3
        assert view["by_reason"] == [["rejected", 3]]
    values = [one.value or b"" for one in records(broker, "orders55")]
    assert sorted(values[4:]) == [b"order 0", b"order 2"]


def test_a_queue_without_a_topic_for_letters_says_how_to_get_one(broker: EmbeddedBroker) -> None:
    settings = Settings(clusters=(ClusterSettings("local", broker.bootstrap),))
    with TestClient(make_app(settings), base_url=URL, headers={"origin": URL}) as client:
        page = client.get("/c/local/queues/none/letters").text
    assert "set errors.deadletterqueue.topic.name of the share group" in page
