"""Bytes of strangers: decoders are bounded and fall back, masks come first."""

from __future__ import annotations

import json
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.reader.types import Record
from ottla.console.decode import json_, msgpack_
from ottla.console.decode.mask import Rules, rules_of
from ottla.console.decode.reading import Decoder
from ottla.console.decode.tree import compact, plain, pretty
from ottla.console.settings import ClusterSettings, Decode, Mask
from ottla.console.views.messages import as_json, line

MIB = 1024 * 1024
LIST = Decoder(Rules(), 4096)
WHOLE = Decoder(Rules(), 2 * MIB, whole=True)


def record(value: bytes | None, key: bytes | None = b"k", **headers: bytes) -> Record:
    return Record("t", 0, 7, 1_000, 0, key, value, tuple(headers.items()))


HOSTILE = {
    "deep": (b"[" * 10_000 + b"]" * 10_000, "nested more than 100 deep"),
    "digits": (b"[" + b"1" * MIB + b"]", "more than 1,048,576 bytes"),
    "fewer digits": (b"[" + b"1" * 100_000 + b"]", "more than 4,300 digits"),
    "nan": (b"[NaN]", "NaN is not JSON"),
    "duplicate keys": (b'{"a": 1, "a": 2}', "more than once"),
    "lone surrogate": (b'{"a": "\\ud800"}', "lone surrogate"),
    "many nodes": (b"[" + b"1," * 200_000 + b"1]", "more than 100,000 nodes"),
    "torn": (b'{"item": "x', "not JSON"),
    # Each of these takes minutes or hours if a character or a key is looked at again and again.
    "quotes that do not end": (b'{"' + b'\\"' * 500_000, "not JSON"),
    "numbers that are almost too long": (b"[" + b"1" * 4_300 + b" " + b"1" * 900_000, "4,300"),
    "a late duplicate": (
        b"{" + b",".join(b'"%x":1' % one for one in (*range(30_000), 29_999)) + b"}",
        "more than once",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_case_22_hostile_json_is_shown_as_text_with_the_reason(name: str) -> None:
    value, reason = HOSTILE[name]
    shown = WHOLE.part("value", value)
    assert shown.form == "text"
    assert shown.reason is not None
    assert reason in shown.reason
    assert shown.text == value.decode()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (msgpack.packb({"a": [1, 2, 3]})[:-1], "not MessagePack"),
        (b"\xdf\x80\x00\x00\x00", "not MessagePack"),
        (b"\x91" * 5_000 + b"\x01", "MessagePack"),
        (msgpack.packb([0] * 200_000), "MessagePack"),
        (msgpack.packb([[[]] * 60_000] * 2), "more than 100,000 nodes"),
        (msgpack.packb([[{}] * 60_000] * 2), "more than 100,000 nodes"),
    ],
    ids=["truncated", "2^31 entries", "deep", "many", "empty lists", "empty maps"],
)
def test_case_22_hostile_msgpack_falls_back(value: bytes, reason: str) -> None:
    shown = Decoder(Rules(), MIB, "msgpack", whole=True).part("value", value)
    assert shown.form in ("text", "hex")
    assert shown.reason is not None
    assert reason in shown.reason


def test_case_22_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        for value, _ in HOSTILE.values():
            WHOLE.part("value", value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * MIB


def test_case_23_large_integers_keep_their_digits() -> None:
    number = "9007199254740993"
    value = b'{"amount": ' + number.encode() + b', "rate": 1.10, "big": 1e400}'
    assert number in LIST.part("value", value).text
    assert number in WHOLE.part("value", value).text
    told = line(LIST.read(record(value)))
    assert f'"amount":{number}' in told
    assert '"rate":1.10' in told


def test_forms_are_found_automatically() -> None:
    forms = {
        None: "null",
        b'{"a": 1}': "json",
        b"[1]": "json",
        b"42": "text",
        "grün".encode(): "text",
        b"\xff\x00": "hex",
        b"a\x00b": "hex",
        b"": "text",
    }
    assert {value: LIST.part("value", value).form for value in forms} == forms


def test_long_values_are_cut_in_lists_without_being_read() -> None:
    value = b'{"a": "' + b"x" * 100_000 + b'"}'
    shown = LIST.part("value", value)
    assert shown.cut
    assert len(shown.text) == 4096
    assert shown.size == len(value)
    assert not WHOLE.part("value", value).cut
    parted = ("x" * 4095 + "ü" * 100).encode()
    assert LIST.part("value", parted).text == "x" * 4095


def test_forms_that_were_asked_for() -> None:
    assert Decoder(Rules(), 100, "hex").part("value", b"ab").text == "61 62"
    assert Decoder(Rules(), 100, "text").part("value", b"a\xff").text == "a\\xff"
    packed = msgpack.packb({"a": b"\x01", 2: [None, True, 1.5]})
    shown = Decoder(Rules(), 100, "msgpack").part("value", packed)
    assert shown.text == '{"a":"0x01","2":[null,true,1.5]}'
    chosen = rules_of(ClusterSettings("c", "h", decoders=(Decode("t*", value="msgpack"),)), "tele")
    assert Decoder(chosen, 100).part("value", packed).form == "msgpack"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_is_written_is_what_was_read(value: object) -> None:
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    tree = json_.read(data)
    assert json.loads(compact(tree)) == value
    assert json.loads(pretty(tree)) == value


@given(st.binary(max_size=200))
def test_no_bytes_break_a_decoder(data: bytes) -> None:
    for form in ("auto", "json", "text", "hex", "msgpack"):
        for whole in (False, True):
            shown = Decoder(Rules(), 50, form, whole=whole).part("value", data)
            assert shown.size == len(data)


def test_numbers_for_expressions() -> None:
    tree = json_.read(b'{"a": 1, "b": 1.5, "c": 99999999999999999999, "d": [true, null, "x"]}')
    assert plain(tree) == {"a": 1, "b": 1.5, "c": 1e20, "d": [True, None, "x"]}
    assert plain(msgpack_.read(msgpack.packb([1, 2.5]))) == [1, 2.5]


MASKED = rules_of(
    ClusterSettings(
        "c",
        "h",
        masks=(
            Mask("orders*", ("value.customer.email", "value.items.card", "headers.auth", "key.id")),
        ),
        hidden=("payroll",),
    ),
    "orders-eu",
)


def test_case_43_masked_fields_are_seen_nowhere() -> None:
    value = b'{"customer": {"email": "a@b.c", "name": "n"}, "items": [{"card": 1}, {"card": 2}]}'
    one = record(value, b'{"id": "secret"}', auth=b"token", other=b"seen")
    for decoder in (
        Decoder(MASKED, 4096),
        Decoder(MASKED, 4096, "hex"),
        Decoder(MASKED, 4096, "text"),
        Decoder(MASKED, 4096, whole=True),
    ):
        message = decoder.read(one)
        shown = line(message) + message.value.text + message.key.text
        for secret in ("a@b.c", "secret", "token", '"card":1', '"card": 1'):
            assert secret not in shown
        assert "seen" in line(message)
        assert '"name"' in message.value.text


def test_case_43_what_cannot_be_decoded_shows_its_length_only() -> None:
    shown = Decoder(MASKED, 4096, "text").part("value", b"email=a@b.c")
    assert (shown.form, shown.text) == ("masked", "11 bytes")


def test_case_43_hidden_topics_are_known() -> None:
    cluster = ClusterSettings("c", "h", hidden=("payroll",))
    assert rules_of(cluster, "payroll").hidden
    assert not rules_of(cluster, "orders").hidden


def test_case_22_of_many_headers_some_are_shown_and_the_others_counted() -> None:
    headers = tuple((f"h{one}", b"v") for one in range(100_000))
    message = LIST.read(Record("t", 0, 7, 1_000, 0, None, b"x", headers))
    assert len(message.headers) + message.more_headers == 100_000
    assert len(message.headers) == 200
    assert as_json(message)["more_headers"] == 99_800
    assert "more_headers" not in as_json(LIST.read(record(b"x", a=b"1")))
