"""URLs, stream keys, and the table of modes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import MemoryOffsetStore
from ottla.streams import ConnectOptions, ConsumerOptions, Mode, Reset, StdioOptions, connect
from ottla.streams.errors import (
    BackendNotInstalled,
    ConfigError,
    GroupIsSet,
    GroupNotSet,
    InvalidStreamKey,
    NoEndingSlash,
    NotOneStreamKey,
    ProtocolRequired,
    StreamKeyEmpty,
    Unsupported,
    UrlError,
)
from ottla.streams.modes import consumer_name, host_id, member_id, validate
from ottla.streams.types import INTERNAL, WILDCARD, AutoCommit, Backend
from ottla.streams.url import parse, parse_stream_url, parse_streamer_uri, validate_key

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams.base import Operation

ROWS = [
    ("redis://h/", "redis", ("h",), ()),
    ("kafka://n1:1,n2:2/a,b", "kafka", ("n1:1", "n2:2"), ("a", "b")),
    ("stdio:///a,b", "stdio", (".",), ("a", "b")),
    ("stdio:///", "stdio", (".",), ()),
    ("file://./dir/x.ss/a,b", "file", ("./dir/x.ss",), ("a", "b")),
    ("file:///dir/x.ss/", "file", ("/dir/x.ss",), ()),
]


@pytest.mark.parametrize(("url", "scheme", "nodes", "keys"), ROWS)
def test_t01_stream_urls(
    url: str, scheme: str, nodes: tuple[str, ...], keys: tuple[str, ...]
) -> None:
    parsed = parse_stream_url(url)
    assert (parsed.scheme, parsed.nodes, parsed.keys) == (scheme, nodes, keys)
    assert str(parsed) == url
    assert parse(url) == parsed


def test_t01_streamer_uris_and_errors() -> None:
    with pytest.raises(NoEndingSlash):
        parse_stream_url("redis://h")
    assert parse_streamer_uri("redis://h").nodes == ("h",)
    with pytest.raises(NotOneStreamKey):
        _ = parse_stream_url("redis://h/a,b").stream
    assert parse_stream_url("redis://h/a").stream == "a"
    with pytest.raises(ProtocolRequired):
        parse_stream_url("/a")
    with pytest.raises(UrlError, match="unknown name"):
        parse("kafka://h/s?speed=fast")
    with pytest.raises(InvalidStreamKey):
        parse_stream_url("proto://h:1/s!")
    assert parse("file://./x.ss").keys is None
    assert parse("file://x.ss/a").keys == ("a",)


@pytest.mark.parametrize("key", ["a", "a" * 249, "A.b_c-9"])
def test_t02_keys(key: str) -> None:
    assert validate_key(key) == key


@pytest.mark.parametrize("key", ["", "a" * 250, "ä", "a b", INTERNAL, WILDCARD])
def test_t02_d32_keys_that_are_none(key: str) -> None:
    with pytest.raises(InvalidStreamKey):
        validate_key(key)


def test_t03_passwords_and_paths() -> None:
    url = "redis://me:s%3Acret@h:6380/3/a"
    parsed = parse(url)
    assert (parsed.username, parsed.password, parsed.db) == ("me", "s:cret", 3)
    assert "cret" not in repr(parsed)
    assert str(parsed) == url
    file = parse("file:///d%20ir/x,y.ss/a")
    assert file.path == "/d ir/x,y.ss"
    assert parse(str(file)) == file


def test_the_query_sets_options() -> None:
    options = ConnectOptions(stdio=StdioOptions(loopback=True))
    consumer = connect("stdio:///a?group=g&mode=load_balanced", options).consumer()
    assert (consumer.options.group, consumer.options.mode) == ("g", Mode.LOAD_BALANCED)
    with pytest.raises(UrlError):
        connect("stdio:///a?mode=fast", options).consumer()


def test_t05_one_table_for_all_backends() -> None:
    def check(options: ConsumerOptions, unsupported: dict[Operation, str] | None = None) -> None:
        for backend in Backend:
            validate(backend, unsupported or {}, ["a"], options)

    for backend in Backend:
        with pytest.raises(GroupIsSet):
            validate(backend, {}, ["a"], ConsumerOptions(group="g"))
        with pytest.raises(GroupNotSet):
            validate(backend, {}, ["a"], ConsumerOptions(mode=Mode.LOAD_BALANCED))
        with pytest.raises(StreamKeyEmpty):
            validate(backend, {}, [], ConsumerOptions())
        validate(backend, {}, ["a"], ConsumerOptions(mode=Mode.RESUMABLE))
        validate(backend, {}, ["a"], ConsumerOptions(mode=Mode.RESUMABLE, group="g"))
    with pytest.raises(ConfigError, match="offsets="):
        check(ConsumerOptions(offsets=MemoryOffsetStore()))
    with pytest.raises(ConfigError, match="both"):
        check(ConsumerOptions(max_deliveries=3))
    with pytest.raises(ConfigError, match="nack"):
        check(ConsumerOptions(max_deliveries=3, dead_letter="d"))
    check(ConsumerOptions(max_deliveries=3, dead_letter="d", auto_commit=AutoCommit.ROLLING))


def test_t05_resumable_needs_what_can_be_replayed() -> None:
    options = ConnectOptions(stdio=StdioOptions(loopback=True))
    with pytest.raises(Unsupported, match="replayed"):
        connect("stdio:///a", options).consumer(options=ConsumerOptions(mode=Mode.RESUMABLE))
    with pytest.raises(Unsupported, match="replayed"):
        connect("stdio:///a", options).consumer(options=ConsumerOptions(reset=Reset.EARLIEST))
    with pytest.raises(ConfigError, match="offsets="):
        connect("file://./x.ss/a").consumer(options=ConsumerOptions(mode=Mode.RESUMABLE))


def test_t06_missing_extras_and_unknown_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("confluent_kafka", "ottla.streams.backends.kafka"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendNotInstalled, match=r"ottla\[kafka\]"):
        connect("kafka://h/a")
    with pytest.raises(UrlError, match="unknown scheme 'amqp'"):
        connect("amqp://h/a")


def test_a_name_is_once_in_a_query() -> None:
    with pytest.raises(UrlError, match="'reset' is twice"):
        connect("stdio:///a?reset=latest&mode=real_time&reset=earliest")


@pytest.mark.parametrize("mode", [Mode.RESUMABLE, Mode.LOAD_BALANCED, Mode.REAL_TIME])
def test_a_group_without_a_name_is_refused(mode: Mode) -> None:
    """Before, a load-balanced consumer got the group of its host."""
    streamer = connect("redis://127.0.0.1/a?group=")
    with pytest.raises(GroupNotSet, match="group is empty"):
        streamer.consumer(options=ConsumerOptions(mode=mode))


@pytest.mark.parametrize("query", ["mode=bad", "reset=never"])
def test_a_wrong_value_in_a_query_is_refused_by_connect(query: str) -> None:
    with pytest.raises(UrlError, match="in a URL's query"):
        connect(f"stdio:///a?{query}")


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_ID", "here")
    assert host_id() == "here"
    assert consumer_name(ConsumerOptions(app="prog")) == "here:prog:r"
    assert consumer_name(ConsumerOptions(group="g")) == "g"
    assert member_id() != member_id()
    monkeypatch.delenv("HOST_ID")
    assert host_id()


def test_only_a_consumer_named_after_its_container_asks_for_a_host_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.streams.modes._IN_CONTAINER", tmp_path)
    monkeypatch.delenv("HOST_ID", raising=False)
    member_id()
    consumer_name(ConsumerOptions(group="g"))
    assert caplog.messages == []
    consumer_name(ConsumerOptions())
    [said] = caplog.messages
    assert "set the environment variable HOST_ID, or give the consumer a group" in said
