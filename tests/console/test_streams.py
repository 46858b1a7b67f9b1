"""Live tails and searches that nobody waits for any more."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any

import pytest

from ottla.client.cluster.cluster import Client
from ottla.clock import SYSTEM
from ottla.console.browse import Browser
from ottla.console.decode.mask import Rules
from ottla.console.decode.reading import Decoder
from ottla.console.pages.tails import MAX_STREAMS
from ottla.console.query import Budget, Query, Start, Stopped
from ottla.sync import Producer
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.console.views.messages import Scan

WAIT = 30.0

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(console=True) as running:
        running.create_topic("orders")
        with Producer(running.bootstrap) as producer:
            for number in range(20):
                producer.send("orders", b"old %d" % number)
        yield running


def visitor(broker: EmbeddedBroker) -> str:
    """The cookie of a new visitor: the console hears late of streams that another test has closed,
    and counts them by visitor."""
    with urllib.request.urlopen(f"{broker.console_url}c/local/topics", timeout=WAIT) as page:
        cookie: str = page.headers["set-cookie"]
    return cookie.partition(";")[0]


def opened(url: str, cookie: str) -> Any:
    return urllib.request.urlopen(
        urllib.request.Request(url, headers={"Cookie": cookie}), timeout=WAIT
    )


def events(stream: IO[bytes]) -> Iterator[tuple[str, str]]:
    name, data = "", []
    for line in stream:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            data.append(text.removeprefix("data: "))
        elif not text and name:
            yield name, "\n".join(data)
            name, data = "", []


def test_a_tail_shows_new_records_as_escaped_rows(broker: EmbeddedBroker) -> None:
    url = f"{broker.console_url}c/local/topics/orders/tail?contains=new"
    with opened(url, visitor(broker)) as stream:
        told = events(stream)
        assert next(told) == ("rows", "")
        with Producer(broker.bootstrap) as producer:
            producer.send("orders", b"other")
            producer.send("orders", b"new <script>")
        name, rows = next(one for one in told if one != ("rows", ""))
        assert name == "rows"
        assert "new &lt;script&gt;" in rows
        assert "other" not in rows
        assert "old" not in rows


def test_case_65_streams_are_few_and_pages_still_load(broker: EmbeddedBroker) -> None:
    base, cookie = broker.console_url, visitor(broker)
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            url = f"{base}c/local/topics/orders/tail"
            stream = stack.enter_context(opened(url, cookie))
            next(events(stream))
        with pytest.raises(urllib.error.HTTPError) as caught:
            opened(f"{base}c/local/topics/orders/tail", cookie)
        assert caught.value.code == 429
        assert "close another one" in caught.value.read().decode()
        caught.value.close()
        with opened(f"{base}c/local/topics", cookie) as page:
            assert page.status == 200
        with opened(f"{base}c/local/topics/orders/tail", visitor(broker)) as other:
            next(events(other))


def test_a_search_tells_how_far_it_is_and_ends_with_the_page(broker: EmbeddedBroker) -> None:
    url = f"{broker.console_url}c/local/topics/orders/search?contains=old+7&from=oldest"
    with opened(url, visitor(broker)) as stream:
        told = list(events(stream))
    assert told[0] == ("progress", "waits for its turn")
    assert told[1][0] == "progress"
    assert re.match(r"scanned \d+ of \d+ records", told[1][1])
    assert told[-1][0] == "found"
    page = json.loads(told[-1][1])
    assert "old 7" in page
    assert "old 8" not in page
    assert "1 found" in page


def test_a_search_with_a_wrong_expression_says_so(broker: EmbeddedBroker) -> None:
    url = f"{broker.console_url}c/local/topics/orders/search?where=value.n%20%3E"
    with opened(url, visitor(broker)) as stream:
        told = list(events(stream))
    assert "where is not an expression" in json.loads(told[-1][1])


def test_case_42_a_search_that_nobody_waits_for_ends(broker: EmbeddedBroker) -> None:
    async def search() -> int:
        asked = 0

        async def on_turn(_: Scan) -> None:
            nonlocal asked
            asked += 1
            raise Stopped("nobody waits")

        client = Client(broker.bootstrap)
        query = Query("orders", Start("oldest"), contains=b"nowhere")
        try:
            await Browser(client, SYSTEM).page(
                query, Decoder(Rules(), 100), Budget(WAIT, 1 << 30), on_turn
            )
        except Stopped:
            return asked
        finally:
            await client.close()
        return 0

    assert asyncio.run(search()) == 1


def test_a_search_stops_at_its_limits_and_goes_on_there(broker: EmbeddedBroker) -> None:
    async def search(budget: Budget, start: Start) -> tuple[str, int, object]:
        client = Client(broker.bootstrap)
        query = Query("orders", start, contains=b"old 19")
        try:
            page = await Browser(client, SYSTEM).page(query, Decoder(Rules(), 100), budget)
            return page.scan.ended, page.scan.found, page.newer
        finally:
            await client.close()

    ended, found, newer = asyncio.run(search(Budget(0.0, 1 << 30), Start("oldest")))
    assert (ended, found) == ("time", 0)
    assert newer == {0: 0}
    ended, found, _ = asyncio.run(search(Budget(WAIT, 1 << 30), Start("oldest", after={0: 0})))
    assert (ended, found) == ("end", 1)
