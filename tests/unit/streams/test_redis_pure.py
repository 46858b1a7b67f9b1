"""Redis without a server: ids, replies, keys, entries, options."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import InvalidResponse, ResponseError

from ottla.streams import ConnectOptions, RedisOptions, connect
from ottla.streams.backends.redis_entries import EntryFormat
from ottla.streams.backends.redis_ids import IdFormat
from ottla.streams.backends.redis_keys import by_slot, shard_of, sharder
from ottla.streams.backends.redis_lane import Found, Pace, Shard
from ottla.streams.backends.redis_parser import ReplyReader, Unfinished
from ottla.streams.backends.redis_replies import RawEntry, claim_reply, read_reply
from ottla.streams.errors import (
    BackendNotInstalled,
    ConfigError,
    FormatError,
    SequenceOverflow,
)
from ottla.streams.types import Outgoing

MS = IdFormat()
LOSSLESS = IdFormat(bits=64)
NS = IdFormat(is_ns=True)


def test_t26_id_vector_both_ways() -> None:
    assert MS.to_seq("1678280595282-7") == 109987797092401159
    assert MS.to_id(109987797092401159) == "1678280595282-7"


def test_t26_what_does_not_fit_is_named() -> None:
    with pytest.raises(SequenceOverflow, match="seq_bits=64") as caught:
        MS.to_seq("5-65536")
    assert caught.value.native_id == "5-65536"
    with pytest.raises(SequenceOverflow):
        MS.to_seq(f"{2**48}-0")
    assert LOSSLESS.to_id(LOSSLESS.to_seq("5-65536")) == "5-65536"


@given(st.integers(0, 2**63), st.integers(0, 65535))
def test_t26_nanoseconds_round_trip(left: int, sub: int) -> None:
    native = f"{left}-{sub}"
    assert NS.to_id(NS.to_seq(native)) == native
    assert NS.timestamp_ns(NS.to_seq(native)) == left


@given(st.sampled_from([MS, LOSSLESS]), st.integers(1, 2**47), st.integers(0, 65535))
def test_reading_after_the_predecessor_begins_with_the_sequence(
    ids: IdFormat, left: int, sub: int
) -> None:
    before = tuple(map(int, ids.predecessor(ids.to_seq(f"{left}-{sub}")).split("-")))
    assert before < (left, sub)
    # The server knows no id between the two.
    assert before in {(left, sub - 1), (left - 1, 2**64 - 1)}


def test_the_predecessor_of_the_start_is_the_start() -> None:
    assert MS.predecessor(0) == "0-0"


def test_t33_replies_of_all_protocols_are_equal() -> None:
    flat = [b"msg", b"x"]
    parsed = {b"msg": b"x"}
    resp2 = [[b"a", [[b"1-0", flat]]], [b"b", [[b"2-0", None]]]]
    resp3 = {b"a": [[b"1-0", flat]], b"b": [[b"2-0", None]]}
    legacy2 = [[b"a", [(b"1-0", parsed)]], [b"b", [(b"2-0", {})]]]
    legacy3 = {b"a": [[(b"1-0", parsed)]], b"b": [[(b"2-0", {})]]}
    unified = {b"a": [(b"1-0", parsed)], b"b": [(b"2-0", {})]}
    entries = EntryFormat(MS, "msg")
    for reply in (resp2, resp3, legacy2, legacy3, unified):
        (a, first), (b, second) = read_reply(reply)
        assert (a, b) == (b"a", b"b")
        message = entries.message("a", 0, first[0], 1)
        assert (message.seq, message.payload, message.native_id) == (1 << 16, b"x", "1-0")
        assert [(one.id, bool(one.fields)) for one in second] == [("2-0", False)]
    assert read_reply(None) == read_reply([]) == read_reply({}) == []


def encode(value: object) -> bytes:
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(map(encode, value))
    if isinstance(value, int):
        return b":%d\r\n" % value
    assert isinstance(value, bytes)
    return b"$%d\r\n%b\r\n" % (len(value), value)


REPLIES = st.recursive(
    st.none() | st.integers() | st.binary(max_size=20), lambda inner: st.lists(inner, max_size=4)
)


TEXTS = st.binary(max_size=20) | st.sampled_from(
    (b"msg", b"1-0", b"7-1\r\n*2", b"\r\n", b"$3\r\nmsg\r\n$1\r\nx\r\n", b"")
)
ENTRY = st.tuples(TEXTS, st.none() | st.lists(TEXTS, max_size=5)).map(list)
READS = st.lists(st.tuples(TEXTS, st.lists(ENTRY, max_size=5)).map(list), min_size=1, max_size=3)
"""Answers of XREADGROUP, with ids and values that look like parts of an answer."""


@given(st.lists(REPLIES | READS, min_size=1, max_size=4), st.integers(1, 7) | st.integers(50, 500))
def test_replies_may_be_cut_anywhere(replies: list[object], step: int) -> None:
    data = b"".join(map(encode, replies))
    reader = ReplyReader()
    found = []
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
        with suppress(Unfinished):
            while True:
                found.append(reader.take())
    assert found == replies
    assert not reader.has_data


@pytest.mark.parametrize(
    "entry",
    [
        [b"1-1\r\n*2\r\n$3\r\nmsg\r\n$1\r\nx", [b"msg", b"y"]],
        [b"1-1", [b"a\r\n$1\r\nx", b"y"]],
        [b"1-1", [b"msg", b"x\r\n*2\r\n$3\r\n1-2\r\n"]],
    ],
)
def test_names_and_values_that_look_like_a_reply_are_taken_by_their_size(
    entry: list[object],
) -> None:
    reader = ReplyReader()
    reader.feed(encode([[b"key", [entry, [b"1-3", [b"msg", b"z"]]]]]))
    assert reader.take() == [[b"key", [entry, [b"1-3", [b"msg", b"z"]]]]]


def test_replies_that_are_errors_or_nonsense() -> None:
    reader = ReplyReader()
    reader.feed(b"*-1\r\n+OK\r\n-NOGROUP gone\r\n!x\r\n")
    assert reader.take() is None
    assert reader.take() == b"OK"
    assert isinstance(error := reader.take(), ResponseError)
    assert str(error) == "NOGROUP gone"
    with pytest.raises(InvalidResponse, match="not RESP2"):
        reader.take()


def test_a_claim_says_what_was_deleted() -> None:
    entry = [b"1-0", [b"msg", b"x"]]
    assert claim_reply([b"0-0", [entry, None], [b"2-0"]]) == (
        "0-0",
        [RawEntry("1-0", [b"msg", b"x"])],
        ["2-0"],
    )


def test_key_and_headers_are_fields_of_their_own() -> None:
    entries = EntryFormat(MS, "data")
    sent = Outgoing("a", b"p", key=b"k", headers=(("h", b"1"), ("h", b"2")))
    laid = [one.encode() if isinstance(one, str) else one for one in entries.fields(sent)]
    message = entries.message("a", 3, RawEntry("7-1", laid), 2)
    assert (message.payload, message.key, message.headers) == (b"p", b"k", sent.headers)
    assert (message.shard, message.delivery, message.timestamp_ns) == (3, 2, 7_000_000)
    with pytest.raises(FormatError, match="data"):
        entries.fields(Outgoing("a", b"p", headers=(("data", b""),)))


def test_only_plain_numbers_are_shards() -> None:
    found = {
        key: shard_of(key, "s") for key in (b"s:0", b"s:12", b"s:x", b"s:01", b"s:", b"s:\xff")
    }
    assert found == {
        b"s:0": 0,
        b"s:12": 12,
        b"s:x": None,
        b"s:01": None,
        b"s:": None,
        b"s:\xff": None,
    }


def test_keys_of_one_command_are_of_one_slot() -> None:
    assert by_slot(["{a}", "{a}:0", "{a}:1"]) == [["{a}", "{a}:0", "{a}:1"]]
    assert len(by_slot(["a:0", "a:1", "a:2"])) == 3


def test_sharders() -> None:
    turns = sharder("round_robin")
    assert [turns(Outgoing("a", b""), 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    by_key = sharder("key")
    assert len({by_key(Outgoing("a", b"", key=b"k"), 7) for _ in range(5)}) == 1
    spread = Counter(sharder("random")(Outgoing("a", b""), 3) for _ in range(300))
    assert set(spread) == {0, 1, 2}
    with pytest.raises(ConfigError, match="round_robin"):
        sharder("fair")


@pytest.mark.parametrize(
    "options",
    [
        RedisOptions(seq_bits=32),
        RedisOptions(timestamp_format="s"),
        RedisOptions(on_bad_entry="ignore"),
        RedisOptions(field="key"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: RedisOptions) -> None:
    with pytest.raises(ConfigError):
        connect("redis://h/a", ConnectOptions(redis=options))


@pytest.mark.parametrize(("scheme", "package"), [("redis", "redis"), ("kafka", "confluent_kafka")])
def test_t06_a_missing_extra_is_named(
    scheme: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith(f"ottla.streams.backends.{scheme}"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendNotInstalled, match=rf"ottla\[{scheme}\]"):
        connect(f"{scheme}://h/a")


def test_redis_is_asked_for_fewer_entries_when_they_are_large() -> None:
    shard = Shard("a", 0, "a")

    def reply(number: int, size: int) -> list[Found]:
        entries = [RawEntry(f"{at}-0", (b"msg", bytes(size))) for at in range(number)]
        return [Found(shard, entries)]

    pace = Pace(100, 1_000_000)
    asked = [pace.count]
    for _ in range(5):
        pace.came(reply(pace.count, 10))
        asked.append(pace.count)
    assert asked == [10, 20, 40, 80, 100, 100]
    pace.came(reply(100, 100_000))
    assert pace.count == 9  # about as many as fit
    pace.came(reply(1, 5_000_000))
    assert pace.count == 1  # one that is larger comes alone
    pace.came([])
    pace.came(reply(1, 10))
    assert pace.count == 2
