"""The console's data and `ottla top` against Apache Kafka."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import json
import re
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ottla import Admin, Consumer, Producer, ProducerRecord, Reader, ShareConsumer
from ottla.cli.top_state import VIEWS
from ottla.cli.whole import app
from ottla.client.cluster.view import TopicPartition
from ottla.client.transactions.types import ProducerFenced
from ottla.clock import SYSTEM
from ottla.console import redrive
from ottla.console import window as w
from ottla.console.clusters import Cluster, ClusterSettings
from ottla.console.letters import REDRIVE_TOPIC, Place
from ottla.console.missing import Missing
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings as ConsoleCluster
from ottla.console.settings import Settings
from ottla.console.views import group, queues
from ottla.console.views.table import Table
from tests.support.console_process import console_process
from tests.support.jvm import ApacheKafka

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from ottla.client.share.types import AckKind

TOPIC, GROUP, QUEUE = "console-orders", "console-billing", "console-warehouse"
KEY = TopicPartition(TOPIC, 0)
LONG_AGO = 1_600_000_000_000
WAIT = 60.0


@pytest.fixture
async def shop(apache_bootstrap: str) -> AsyncIterator[str]:
    """Five records; a group that has taken two of them, and a queue at its beginning."""
    async with Admin(apache_bootstrap) as admin:
        await admin.create_topic(TOPIC, 1)
        async with Producer(apache_bootstrap) as producer:
            for number in range(5):
                await producer.send(TOPIC, b"v", timestamp_ms=LONG_AGO + 1_000 * number)
        await admin.alter_group_offsets(GROUP, {KEY: 2})
        await admin.alter_share_group_offsets(QUEUE, {KEY: 1})
        yield apache_bootstrap
        await admin.delete_groups([GROUP, QUEUE])
        await admin.delete_topic(TOPIC)


async def test_case_46_the_lag_equals_a_computation_from_the_log(shop: str) -> None:
    cluster = Cluster(ClusterSettings("local", shop))
    try:
        await cluster.tick()
        await cluster.snapshot.refresh_group(GROUP)
        await cluster.snapshot.refresh_stamps(GROUP)
        await cluster.snapshot.refresh_queue(QUEUE)
        await cluster.snapshot.refresh_windows(QUEUE)
        look, rules = cluster.look(), cluster.attention()
        page = group.page(look, rules, GROUP)
        assert isinstance(page.partitions, Table)
        [row] = page.partitions.rows
        assert (row.committed, row.end, row.lag_records, row.exact) == (2, 5, 3, True)
        assert row.lag_s is not None
        assert look.now.wall_ms - 60_000 < LONG_AGO + 2_000 + row.lag_s * 1000 <= look.now.wall_ms
        listed = queues.page(look, rules).queues
        assert isinstance(listed, Table)
        [queue] = [one for one in listed.rows if one.name == QUEUE]
        assert (queue.lag_records, queue.in_flight) == (4, None), "Kafka tells no records in flight"
        windows = look.data.windows[QUEUE].value
        assert not isinstance(windows, Missing)
        [window] = windows
        assert (window.start, window.end, window.log_end) == (1, 1, 5)
    finally:
        await cluster.close()


async def test_case_53_the_stored_half_of_a_window(shop: str) -> None:
    async with ShareConsumer(shop, group=QUEUE, topics=[TOPIC], ack_mode="explicit") as member:
        found = await member.poll(60.0)
        assert [record.offset for record in found] == [1, 2, 3, 4]
        kinds: list[AckKind] = ["release", "accept", "reject", "accept"]
        for record, kind in zip(found, kinds, strict=True):
            member.acknowledge(record, kind)
        await member.commit()
        cluster = Cluster(ClusterSettings("local", shop))
        try:
            await cluster.tick()
            for _ in range(2):  # the second look reads what is new only
                await cluster.snapshot.refresh_windows(QUEUE, 0)
            windows = cluster.look().data.windows[QUEUE].value
        finally:
            await cluster.close()
    assert not isinstance(windows, Missing)
    [window] = windows
    assert (window.source, window.start, window.end, window.cut) == ("state topic", 1, 5, False)
    states = [one.state for one in w.columns(window, 4)]
    assert states == [
        w.State.AGAIN,
        w.State.ACKNOWLEDGED,
        w.State.ARCHIVED,
        w.State.ACKNOWLEDGED,
    ]


async def test_case_70_every_view_of_top(shop: str) -> None:
    def shown(view: str) -> Any:
        words = ["top", view, "--once", "--json", "--interval", "0.1", "--bootstrap", shop]
        result = CliRunner().invoke(app, words)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return json.loads(result.stdout)

    # In a thread: each command runs an event loop of its own.
    found = {view: await asyncio.to_thread(shown, view) for view in VIEWS}
    assert TOPIC in {row["name"] for row in found["topics"]["topics"]["rows"]}
    assert GROUP in {row["name"] for row in found["groups"]["groups"]["rows"]}
    assert QUEUE in {row["name"] for row in found["queues"]["queues"]["rows"]}
    [node] = found["overview"]["nodes"]
    assert node["free_bytes"] > 0


@pytest.fixture
def console(apache_bootstrap: str) -> Iterator[TestClient]:
    settings = Settings(clusters=(ConsoleCluster("local", apache_bootstrap),))
    with TestClient(make_app(settings), base_url="http://127.0.0.1:9095") as client:
        yield client


def until(client: TestClient, path: str, *texts: str) -> str:
    """The page once it has these texts; what the cluster has not told yet is missing on it."""
    end = time.monotonic() + WAIT
    while not all(text in (page := client.get(path).text) for text in texts):
        assert time.monotonic() < end, page
    return page


def filled(bootstrap: str, name: str, partitions: int, count: int) -> None:
    async def fill() -> None:
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topic(name, partitions)
            await producer.send_many(
                name,
                [
                    ProducerRecord(
                        b'{"n": %d, "shop": "%s"}' % (one, b"oslo" if one % 50 == 7 else b"rome"),
                        partition=one % partitions,
                        timestamp_ms=LONG_AGO + one * 1_000,
                    )
                    for one in range(count)
                ],
            )

    asyncio.run(fill())


def dropped(bootstrap: str, *names: str) -> None:
    """The cluster is shared with other tests."""

    async def drop() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_topics(names)

    asyncio.run(drop())


def numbers(client: TestClient, topic: str, query: str) -> list[int]:
    """All pages of the records that a query finds."""
    found: list[int] = []
    onward: str | None = ""
    while onward is not None:
        answer = client.get(f"/api/v1/c/local/topics/{topic}/messages?{query}&{onward}")
        assert answer.status_code == 200, answer.text
        found += [json.loads(one)["value"]["json"]["n"] for one in answer.text.splitlines()]
        onward = answer.headers.get("ottla-next")
    return found


def test_case_34_40_and_44_records_of_apache_kafka(
    apache_bootstrap: str, console: TestClient
) -> None:
    topic, count = "console-records", 300
    filled(apache_bootstrap, topic, 3, count)
    assert numbers(console, topic, "from=newest&rows=100") == list(reversed(range(count)))
    assert numbers(console, topic, "from=oldest&rows=100") == list(range(count))
    assert numbers(console, topic, "from=oldest&p=1&rows=100") == list(range(1, count, 3))
    time_of = "2020-09-13T12:28:20Z"  # 100 s after the first
    assert numbers(console, topic, f"from=time:{time_of}&rows=500") == list(range(100, count))
    oslo = [one for one in range(count) if one % 50 == 7]
    assert numbers(console, topic, "from=oldest&contains=oslo") == oslo
    where = "value.n%20%3E%20100%20%26%26%20value.shop%20%3D%3D%20%22oslo%22"
    found = numbers(console, topic, f"from=oldest&where={where}")
    assert found == [one for one in oslo if one > 100]
    lines = console.get(f"/c/local/topics/{topic}/download?format=jsonl").text.splitlines()
    assert sorted(json.loads(one)["value"]["json"]["n"] for one in lines) == list(range(count))
    file = console.get(f"/c/local/topics/{topic}/download?format=parquet").content
    rows = pq.read_table(io.BytesIO(file)).to_pylist()
    assert sorted(json.loads(one["value"])["n"] for one in rows) == list(range(count))
    dropped(apache_bootstrap, topic)


def test_case_56_a_redrive_to_apache_kafka_is_repeated_without_effect(
    apache_bootstrap: str,
) -> None:
    letters, target, count = "dlq.console-redrive", "console-redrive", 250

    async def fill() -> None:
        async with Admin(apache_bootstrap) as admin, Producer(apache_bootstrap) as producer:
            await admin.create_topic(target, 2)
            await admin.create_topic(letters, 1)
            headers = [
                ("__dlq.errors.topic", target.encode()),
                ("__dlq.errors.partition", b"1"),
                ("__dlq.errors.offset", b"5"),
                ("__dlq.errors.group", b"w"),
            ]
            await producer.send_many(
                letters, [ProducerRecord(b"%d" % one, b"k", headers) for one in range(count)]
            )

    async def sent() -> list[bytes]:
        async with Reader(
            apache_bootstrap, target, stop="latest", isolation_level="read_committed"
        ) as reader:
            return [one.value or b"" async for one in reader.records()]

    async def run(plan: redrive.Plan) -> redrive.Progress:
        progress = redrive.Progress(count)
        cluster = ClusterSettings("local", apache_bootstrap)
        await redrive.run(cluster, plan, progress, SYSTEM)
        return progress

    asyncio.run(fill())
    places = tuple(Place(0, one) for one in range(count))
    plan = redrive.Plan("w", letters, places, same_partition=True, rate=100_000)
    first = asyncio.run(run(plan))
    assert (first.done, first.passed, first.refused) == (count, 0, [])
    wanted = sorted(b"%d" % one for one in range(count))
    assert sorted(asyncio.run(sent())) == wanted
    again = asyncio.run(run(plan))
    assert (again.done, again.passed) == (0, count)
    assert sorted(asyncio.run(sent())) == wanted
    dropped(apache_bootstrap, letters, target, REDRIVE_TOPIC)


def test_case_1_pages_of_apache_kafka(apache_bootstrap: str, console: TestClient) -> None:
    filled(apache_bootstrap, "console-listed", 1, 3)
    until(console, "/c/local/topics?contains=console-listed", ">console-listed<")
    until(console, "/c/local/doctor", "ListOffsets")
    until(console, "/c/local/schemas", "no schema registry is known")
    until(console, "/c/local/security", "Rights")
    until(console, "/c/local/tables", "No tables")
    until(console, "/c/local/queues/none/letters", "No letters:")
    dropped(apache_bootstrap, "console-listed")


def test_case_1_the_command_beside_apache_kafka(apache_bootstrap: str, tmp_path: Path) -> None:
    names = [f"console-{word}" for word in ("one", "two", "three")]
    for name in names:
        filled(apache_bootstrap, name, 1, 1)
    with console_process(tmp_path, apache_bootstrap) as (url, _):
        page = urllib.request.urlopen(f"{url}c/local/topics?contains=console-").read().decode()
        for name in names:
            assert f">{name}</bdi>" in page
    dropped(apache_bootstrap, *names)


def test_case_10_one_of_two_clusters_away(apache_bootstrap: str) -> None:
    filled(apache_bootstrap, "console-there", 1, 1)
    clusters = (ConsoleCluster("local", apache_bootstrap), ConsoleCluster("away", "127.0.0.1:1"))
    made = make_app(Settings(clusters=clusters))
    with TestClient(made, base_url="http://127.0.0.1:9095") as client:
        until(client, "/c/away/", "No broker has answered for", "tries again")
        until(client, "/c/local/topics?contains=console-there", ">console-there</bdi>")
        assert list(client.get("/readyz").json()["away"]) == ["away"]
    dropped(apache_bootstrap, "console-there")


def test_case_18_a_cluster_without_share_groups() -> None:
    with ApacheKafka(features={"share.version": 0}) as kafka:
        settings = Settings(clusters=(ConsoleCluster("local", kafka.bootstrap),))
        made = make_app(settings)
        with TestClient(made, base_url="http://127.0.0.1:9095") as client:
            page = until(client, "/c/local/", "Nodes")
            assert ">Queues</a>" not in page
            for path in ("queues", "queues/warehouse", "queues/warehouse/orders/0"):
                assert "share.version" in client.get(f"/c/local/{path}").text, path


def test_case_34_pages_by_offset_time_and_ago(apache_bootstrap: str, console: TestClient) -> None:
    topic = "console-paged"
    filled(apache_bootstrap, topic, 1, 130)
    at = f"/c/local/topics/{topic}/messages"

    def offsets(page: str) -> list[int]:
        found = re.findall(rf'href="/c/local/topics/{topic}/messages/0/(\d+)"', page)
        return [int(one) for one in found]

    assert offsets(console.get(f"{at}?from=offset:40&p=0").text) == list(range(40, 90))
    assert "Nothing was written after" in console.get(f"{at}?from=ago:15m").text
    first = console.get(at).text
    assert offsets(first) == list(range(129, 79, -1))
    [older] = re.findall(r'rel="next" href="([^"]+)"', first)
    second = console.get(html.unescape(older)).text
    assert offsets(second) == list(range(79, 29, -1))
    assert offsets(console.get(html.unescape(older)).text) == offsets(second)  # in a new tab
    [newer] = re.findall(r'rel="prev" href="([^"]+)"', second)
    assert offsets(console.get(html.unescape(newer)).text) == offsets(first)
    page = console.get(f"{at}/0/7").text
    assert "batch" in page
    dropped(apache_bootstrap, topic)


def test_case_35_aborted_transactions_and_compacted_records(
    apache_bootstrap: str, console: TestClient
) -> None:
    topic = "console-ledger"

    async def fill() -> None:
        async with Admin(apache_bootstrap) as admin:
            await admin.create_topic(topic, 1)
        async with Producer(apache_bootstrap, transactional_id="console-t") as producer:
            for word, fails in (("a", False), ("b", True), ("c", False)):
                try:
                    async with producer.transaction():
                        await producer.send(topic, f"kept-{word}".encode())
                        if fails:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass

    asyncio.run(fill())
    at = f"/c/local/topics/{topic}/messages"
    committed = until(console, at, "kept-a", "kept-c")
    assert "kept-b" not in committed
    rows = re.findall(r"<tr.*?</tr>", console.get(f"{at}?isolation=uncommitted").text, re.DOTALL)
    marked = {word: [one for one in rows if f"kept-{word}" in one] for word in "abc"}
    assert "aborted" in marked["b"][0]
    assert all("aborted" not in marked[word][0] for word in "ac")
    assert "holds no record" in console.get(f"{at}/0/1").text
    page = console.get(f"{at}/0/0").text
    assert "<dt>transaction</dt><dd>committed</dd>" in page
    assert "<dt>producer</dt>" in page
    dropped(apache_bootstrap, topic)


@pytest.fixture
def writing(apache_bootstrap: str) -> Iterator[TestClient]:
    cluster = ConsoleCluster("local", apache_bootstrap, write=True)
    made = make_app(Settings(write=True, clusters=(cluster,)))
    with TestClient(made, base_url=URL, follow_redirects=False) as client:
        yield client


URL = "http://127.0.0.1:9095"


def post(client: TestClient, path: str, **form: str) -> Any:
    page = client.get("/c/local/topics/any/produce").text
    found = re.search(r'name="token" value="(\w+)"', page)
    assert found is not None
    return client.post(path, data={"token": found[1], **form}, headers={"origin": URL})


async def test_case_48_a_reset_is_applied_as_previewed_or_refused(
    shop: str, writing: TestClient
) -> None:
    at = f"/c/local/groups/{GROUP}"
    seen = post(writing, f"{at}/reset-preview", to="earliest").text
    assert "<b>2</b> records are read again" in seen
    moves = re.search(r'name="moves" value="([^"]+)"', seen)
    assert moves is not None

    async def committed() -> int:
        async with Admin(shop) as admin:
            [found] = await admin.list_group_offsets(GROUP)
        return found.offset

    async with Consumer(shop, group=GROUP, topics=[TOPIC], auto_commit=False) as consumer:
        await consumer.poll(timeout=WAIT)
        refused = await asyncio.to_thread(post, writing, f"{at}/reset", moves=moves[1])
        assert refused.status_code == 409
        assert "member(s); stop them" in refused.text
    assert await committed() == 2
    done = await asyncio.to_thread(post, writing, f"{at}/reset", moves=moves[1])
    assert done.status_code == 303, done.text
    assert await committed() == 0


async def test_case_58_an_open_transaction_is_listed_and_fenced(
    apache_bootstrap: str, writing: TestClient
) -> None:
    topic, name = "console-open", "console-open-1"
    async with Admin(apache_bootstrap) as admin:
        await admin.create_topic(topic, 1)
    page = f"/c/local/transactions/{name}"

    async def fenced(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_many(topic, [ProducerRecord(b"x")] * 3)
            path = f"/api/v1{page}"
            view = await asyncio.to_thread(until, writing, path, '"state":"Ongoing"')
            assert '"held_back":3' in view
            wrong = await asyncio.to_thread(post, writing, f"{page}/fence", name="other")
            assert wrong.status_code == 400
            done = await asyncio.to_thread(post, writing, f"{page}/fence", name=name)
            assert done.status_code == 303, done.text

    async with Producer(apache_bootstrap, transactional_id=name) as producer:
        with pytest.raises(ProducerFenced):
            await fenced(producer)
    await asyncio.to_thread(until, writing, f"/api/v1{page}", '"open_s":null')
    await asyncio.to_thread(until, writing, "/c/local/transactions?hanging=0", "None hangs.")
    await asyncio.to_thread(dropped, apache_bootstrap, topic)


def test_cases_40_and_44_of_many_records(apache_bootstrap: str, console: TestClient) -> None:
    topic, count = "console-many", 100_000
    filled(apache_bootstrap, topic, 4, count)
    oslo = [one for one in range(count) if one % 50 == 7]
    assert numbers(console, topic, "from=oldest&contains=oslo&rows=500") == oslo
    text = console.get(f"/c/local/topics/{topic}/download?format=csv").text
    rows = csv.DictReader(io.StringIO(text))
    assert sorted(json.loads(row["value"])["n"] for row in rows) == list(range(count))
    file = console.get(f"/c/local/topics/{topic}/download?format=parquet").content
    table = pq.read_table(io.BytesIO(file))
    assert table.num_rows == count
    dropped(apache_bootstrap, topic)
