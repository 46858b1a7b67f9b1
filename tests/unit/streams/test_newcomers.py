"""Where newcomers stumbled: each of these now works, or says what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import ConnectOptions, ConsumerOptions, Create, FileOptions, Reset, connect
from ottla.streams.errors import ConfigError, ConnectError, UrlError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_path_is_no_url() -> None:
    with pytest.raises(UrlError, match=r"file://\./FILE\.ss/"):
        connect("x.ss")


@pytest.mark.parametrize("url", ["kafka:///orders", "redis:///orders", "rediss:///orders"])
def test_a_url_without_a_server_is_refused_at_once(url: str) -> None:
    with pytest.raises(UrlError, match=r"names no server; write .*://HOST:PORT/STREAM"):
        connect(url)


async def test_a_file_that_is_not_there_is_made_as_the_error_says(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/x.ss/a"
    said = r'connect\(url, FileOptions\(create="if_missing"\)\)'
    with pytest.raises(ConnectError, match=said):
        await connect(url).__aenter__()
    word: Any = "if_missing"
    async with connect(url, FileOptions(create=word)) as streamer, streamer.producer() as producer:
        await (await producer.send(b"1"))
    assert (tmp_path / "x.ss").exists()


def test_words_for_members_of_options_and_what_connect_takes() -> None:
    word: Any = "if_missing"
    assert FileOptions(create=word).create is Create.IF_MISSING
    wrong: Any = "always"
    with pytest.raises(ConfigError, match="create is one of 'never', 'if_missing', 'exclusive'"):
        FileOptions(create=wrong)
    options: Any = ConsumerOptions()
    with pytest.raises(ConfigError, match="not ConsumerOptions; options of consumers"):
        connect("stdio:///a", options)


async def test_who_waits_at_the_end_of_a_filled_file_is_told_so(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/x.ss/a"
    made = ConnectOptions(file=FileOptions(create=Create.IF_MISSING))
    async with connect(url, made) as streamer:
        async with streamer.producer() as producer:
            await (await producer.send(b"1"))
        async with streamer.consumer() as consumer:
            with pytest.raises(TimeoutError, match=r'began at the end .*reset="earliest"'):
                await consumer.next(0.01)
        earliest = ConsumerOptions(reset=Reset.EARLIEST)
        async with streamer.consumer(options=earliest) as consumer:
            assert (await consumer.next(10)).payload == b"1"
            with pytest.raises(TimeoutError, match=r"^no message in 0.01 s$"):
                await consumer.next(0.01)
