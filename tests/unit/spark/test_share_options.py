"""Options of the share source: defaults, refusals, verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster.view import TopicPartition
from ottla.spark.errors import BadOption, BadVerdict
from ottla.spark.options import Mode, parse_source, warn_unknown
from ottla.spark.share.options import ShareOptions
from ottla.spark.share.ranges import Span
from ottla.spark.share.verdicts import read_verdicts

if TYPE_CHECKING:
    from pathlib import Path

GIVEN = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "shareGroup": "g"}


def share(mode: Mode = "stream", /, **options: str) -> ShareOptions | None:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source({**GIVEN, **given}, mode).share


def test_defaults() -> None:
    assert share() == ShareOptions("g", None, 1_000_000, True, "hold", None, None)
    assert share(startingOffsets="Earliest", share__renew="false", share__onStop="release") == (
        ShareOptions("g", None, 1_000_000, False, "release", None, "earliest")
    )
    assert (
        parse_source({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}, "stream").share is None
    )
    judged = share(share__verdicts="topic:bad")
    assert judged is not None
    assert judged.verdict_topic == "bad"
    assert ShareOptions("g", None, 1, True, "hold", "bad/topic:x", None).verdict_topic is None
    assert warn_unknown({**GIVEN, "share.maxRecords": "5", "share.memberId": "m"}) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shareGroup": ""}, "give the name of a group"),
        ({"share__maxRecords": "0"}, "share.maxRecords is a whole number"),
        ({"share__renew": "maybe"}, "share.renew is auto or false"),
        ({"share__onStop": "drop"}, "share.onStop is hold or release"),
        ({"share__memberId": "m" * 37}, "1 to 36 characters"),
        ({"startingOffsets": '{"t": {"0": 5}}'}, "earliest or latest with shareGroup"),
        ({"share__verdicts": "topic:"}, "share.verdicts names nothing"),
        ({"offsetsGroup": "other"}, "offsetsGroup cannot be used with shareGroup"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger cannot be used"),
        ({"maxBytesPerTrigger": "5"}, "maxBytesPerTrigger cannot be used .* share.maxRecords"),
    ],
)
def test_refusals_name_the_option(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        share(**options)


def test_a_batch_query_is_refused() -> None:
    with pytest.raises(BadOption, match="shareGroup is for streaming queries"):
        share("batch")
    assert share("unknown") is not None


def test_options_of_a_family_without_its_head_are_refused() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "share.renew": "auto"}
    with pytest.raises(BadOption, match="give shareGroup too"):
        parse_source(given, "stream")


def test_verdicts_come_from_a_file_or_a_directory(tmp_path: Path) -> None:
    lines = [f'{{"topic": "t", "partition": 1, "offset": {at}}}' for at in (4, 7, 5)]
    (tmp_path / "part-0.json").write_text(lines[0] + "\n\n")
    (tmp_path / "part-1.json").write_text("\n".join(lines[1:]))
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".part-0.json.crc").write_bytes(b"crc")
    place = TopicPartition("t", 1)
    assert read_verdicts(str(tmp_path)) == {place: [Span(4, 5), Span(7, 7)]}
    assert read_verdicts(f"file://{tmp_path}/part-0.json") == {place: [Span(4, 4)]}
    assert read_verdicts(str(tmp_path / "none")) == {}


@pytest.mark.parametrize("line", ["{", "[1]", '{"topic": "t"}', '{"topic": "t", "partition": {}}'])
def test_a_bad_verdict_is_told_with_its_place(tmp_path: Path, line: str) -> None:
    (tmp_path / "verdicts").write_text("\n" + line)
    with pytest.raises(BadVerdict, match=r"verdicts:2: expected"):
        read_verdicts(str(tmp_path / "verdicts"))
