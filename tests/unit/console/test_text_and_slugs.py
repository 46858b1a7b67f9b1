"""Names and bytes of strangers: what is shown, and what stands in URLs."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import (
    ClientError,
    ConnectionLost,
    UnsupportedApi,
    kafka_error,
)
from ottla.console import capabilities as can
from ottla.console import figures
from ottla.console.capabilities import capabilities
from ottla.console.missing import Missing, missing
from ottla.console.slugs import BadSlug, slug, unslug
from ottla.console.text import MOST_MARKS, csv_cell, name, visible
from ottla.wire.error_codes import ErrorCode

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("orders", "orders"),
        ("ünïcode 例 😀", "ünïcode 例 😀"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩"),
        ("a\u200bb\ufeff", "a⟨U+200B⟩b⟨U+FEFF⟩"),
        ("a\u2028b\u2029", "a⟨U+2028⟩b⟨U+2029⟩"),
        ("a\x00b\x1b[31m\x7f\x85", "a⟨U+0000⟩b⟨U+001B⟩[31m⟨U+007F⟩⟨U+0085⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("\ufe0f\u3164", "⟨U+FE0F⟩⟨U+3164⟩"),
        ("tab\tline\n", "tab⟨U+0009⟩line⟨U+000A⟩"),
        ("<script>", "<script>"),
    ],
)
def test_case_21_what_cannot_be_seen_is_written_out(raw: str, seen: str) -> None:
    assert visible(raw) == seen


def test_case_21_ten_thousand_marks_are_cut() -> None:
    seen = visible("a" + "\u0301" * 10_000 + "b")
    assert seen == "a" + "\u0301" * MOST_MARKS + "⟨9992 more marks⟩b"
    assert visible("e\u0301") == "e\u0301"
    assert visible("\u0301" * 9).endswith("⟨1 more marks⟩")


def test_lines_stay_in_a_box_of_their_own() -> None:
    assert visible("a\n\tb\r", lines=True) == "a\n\tb⟨U+000D⟩"


@given(ANY_TEXT)
def test_case_22_whatever_comes_only_visible_characters_are_shown(raw: str) -> None:
    seen = visible(raw)
    assert not {unicodedata.category(char) for char in seen} & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    seen.encode()  # no surrogate is left
    assert visible(seen) == seen


@given(ANY_TEXT, st.integers(1, 100))
def test_a_name_is_no_longer_than_its_cell(raw: str, most: int) -> None:
    assert len(name(raw, most)) <= most


@pytest.mark.parametrize("cell", ["=cmd()", "+1", "-1", "@x", "\tx", "\rx"])
def test_case_24_no_cell_is_a_formula(cell: str) -> None:
    assert csv_cell(cell) == "'" + cell
    assert csv_cell("plain") == "plain"


@pytest.mark.parametrize("raw", ["a/b", "..", ".", " ", "😀", "=x", "x" * 249, "", "a b", "%2e"])
def test_case_25_odd_names_have_slugs(raw: str) -> None:
    made = slug(raw)
    assert unslug(made) == raw
    assert "/" not in made
    assert made not in ("", ".", "..")


@given(ANY_TEXT)
def test_case_25_every_name_has_one_slug(raw: str) -> None:
    made = slug(raw)
    assert unslug(made) == raw
    assert made.isascii()
    assert not made.startswith(".")
    assert not set(made) & set("/%?#&+ \"'<>")


@given(st.text("=AZaz09_-./ ", max_size=12))
def test_case_25_no_two_slugs_name_the_same(segment: str) -> None:
    try:
        raw = unslug(segment)
    except BadSlug:
        return
    assert slug(raw) == segment


@pytest.mark.parametrize("segment", ["", ".", "..", "a/b", "=b3JkZXJz", "=!", "=gA", "=YQ=="])
def test_a_wrong_slug_is_refused_with_a_sentence(segment: str) -> None:
    with pytest.raises(BadSlug, match="base64url"):
        unslug(segment)  # =b3JkZXJz is "orders", which has a shorter slug


# -- figures that are missing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            kafka_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "read"),
            "not allowed: needs Describe on group 'billing'",
        ),
        (UnsupportedApi("x"), "the cluster does not serve this"),
        (kafka_error(ErrorCode.UNSUPPORTED_VERSION, "x"), "the cluster does not serve this"),
        (ConnectionLost("lost\n it"), "lost it"),
    ],
)
def test_case_19_the_reason_stands_in_place_of_the_figure(error: ClientError, reason: str) -> None:
    assert missing(error, "Describe on group 'billing'") == Missing(reason)


def test_a_long_reason_is_cut_and_visible() -> None:
    found = missing(ClientError("x\u202e" * 1000), "")
    assert len(found.reason) == 300
    assert "\u202e" not in found.reason


def test_figures_as_people_read_them() -> None:
    assert [figures.count(n) for n in (0, 0.25, 310, 12_400, 84_200_000, None)] == [
        *("0", "0.2", "310", "12.4k", "84.2M", "-")
    ]
    assert figures.count(Missing("x")) == figures.whole(None) == figures.size(None) == "-"
    assert [figures.size(n) for n in (312, 3.1 * 1024**3)] == ["312 B", "3.1 GiB"]
    assert [figures.duration(n) for n in (0, 0.2, 21, 724, 12_000, 597_600)] == [
        *("0 s", "0.2 s", "21 s", "12 min 04 s", "3 h 20 min", "6 d 22 h")
    ]
    assert figures.spark((None, 0.0, 4.0, 8.0), 4) == " ▁▅█"
    assert figures.spark((), 4) == ""
    assert figures.spark((0.0, 0.0), 4) == "▁▁"


def test_case_18_what_a_cluster_does_not_have_is_explained() -> None:
    old = capabilities(
        {2: (0, 8), 66: (0, 0)},
        nodes=1,
        has_windows=False,
        has_catalogue=False,
        has_tables=False,
        has_pipelines=False,
        has_registry=False,
    )
    assert can.TRANSACTIONS in old
    assert old.explain(can.TRANSACTIONS) is None
    for word in (can.SHARE_GROUPS, can.SHARE_WINDOWS, can.TIER, can.NODES, can.LOG_DIRS):
        assert word not in old
        assert old.explain(word)
    assert "share.version" in str(old.explain(can.SHARE_GROUPS))
    new = capabilities(
        {2: (1, 11), 77: (1, 1)},
        nodes=3,
        has_windows=True,
        has_catalogue=True,
        has_tables=True,
        has_pipelines=True,
        has_registry=False,
    )
    assert {can.SHARE_GROUPS, can.SHARE_WINDOWS, can.TIER, can.NODES} <= new.has
    for features, has in (
        ({}, True),
        ({"metadata.version": 29, "share.version": 1}, True),
        ({"metadata.version": 29}, False),
        ({"metadata.version": 29, "share.version": 0}, False),
    ):
        found = capabilities(
            {77: (1, 1)},
            features,
            nodes=1,
            has_windows=False,
            has_catalogue=False,
            has_tables=False,
            has_pipelines=False,
            has_registry=False,
        )
        assert (can.SHARE_GROUPS in found) is has, features
