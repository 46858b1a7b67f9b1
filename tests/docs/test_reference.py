"""The reference is complete: all public names, all options, all limits; each limit has a number."""

from __future__ import annotations

import re
from pathlib import Path

import griffe
import pytest

import ottla
from ottla.metadata.config.broker_keys import BROKER_CONFIGS
from ottla.metadata.config.keys import GROUP_CONFIGS, TOPIC_CONFIGS
from ottla.spark.options import NAMES
from ottla.spark.sink.options import SINK_NAMES
from scripts.docs_griffe import ReferenceDocstrings
from scripts.docs_hooks import PYTHON, configuration, python_api
from scripts.docs_limits import LIMITS, limits_page, shown, value

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", PYTHON)
def test_a_page_has_every_public_name(page: str) -> None:
    text = python_api(page)
    _, _, sources = PYTHON[page]
    assert text.count("\n::: ") >= len(sources)


def test_the_front_page_has_all_names_but_modules() -> None:
    text = python_api("python")
    modules = {"errors", "offsets", "spark", "streams", "sync", "testing"}
    shown = {
        line.removeprefix("::: ottla.") for line in text.splitlines() if line.startswith(":::")
    }
    assert shown == set(ottla.__all__) - modules


def test_internal_methods_are_not_shown() -> None:
    package = griffe.load(
        "ottla",
        search_paths=[str(ROOT / "src")],
        extensions=griffe.load_extensions(ReferenceDocstrings),
    )
    consumer = package["streams.consumer.Consumer"]
    assert "commit" in consumer.members
    hidden = {"check_committing", "transaction_failed", "revoke", "commit_soon", "source"}
    assert hidden.isdisjoint(consumer.members)
    assert "Save a position" in package["offsets.memory.SyncMemoryOffsetStore.save"].docstring.value


def test_every_option_of_spark_is_described() -> None:
    page = (DOCS / "reference" / "spark-options.md").read_text()
    assert [name for name in (*NAMES, *SINK_NAMES) if f"`{name}`" not in page] == []


def test_every_key_is_described() -> None:
    page = configuration().replace("<wbr>", "")
    for table in (BROKER_CONFIGS, TOPIC_CONFIGS, GROUP_CONFIGS):
        assert [key for key in table if f"<code>{key}</code>" not in page] == []


def test_every_limit_has_a_name_a_number_and_a_reason() -> None:
    page = limits_page()
    rows = [row for rows in LIMITS.values() for row in rows]
    assert "nan" not in page
    assert page.count("\n| ") == len(rows) + len(LIMITS)
    cells = [line.split("|")[1:-1] for line in page.splitlines() if "<code>" in line]
    assert len(cells) == len(rows)
    assert all(cell.strip() for line in cells for cell in line)


def test_numbers_in_reasons_come_from_the_code() -> None:
    bits = re.compile(r"32-bit|UTF-8")  # of a format: they cannot change
    texts = [row.what + row.reason for rows in LIMITS.values() for row in rows]
    bare = [re.sub(r"\{[^}]*\}", "", bits.sub("", text)) for text in texts]
    assert [text for text in bare if re.search(r"\d", text)] == []


@pytest.mark.parametrize(
    ("page", "sentence", "source", "unit"),
    [
        (
            "how-to/broker",
            "holds at most {} of records",
            "ottla.broker.serving.answer_memory:MAX_READ_BYTES",
            "bytes",
        ),
        (
            "how-to/broker",
            "for `fetch.min.bytes` only up to {}",
            "ottla.broker.handlers.fetch:MAX_MIN_BYTES",
            "bytes",
        ),
        (
            "how-to/broker",
            "read nothing for {} is disconnected",
            "ottla.broker.serving.answer_memory:STALL_SECONDS",
            "seconds",
        ),
        ("how-to/broker", "`queued.max.request.bytes` | {} |", "queued.max.request.bytes", "bytes"),
        (
            "how-to/broker",
            "`ottla.queued.max.response.bytes` | {} |",
            "ottla.queued.max.response.bytes",
            "bytes",
        ),
        (
            "how-to/broker",
            "more than {} records, or of",
            "ottla.log.validate:QUICK_RECORDS",
            "count",
        ),
        (
            "how-to/broker",
            "more than {} times its size",
            "ottla.wire.compression:DECOMPRESSION_RATIO",
            "count",
        ),
        (
            "how-to/offsets",
            "until the file has {} and is replaced",
            "ottla.offsets.layouts:MAX_GROWN_BYTES",
            "bytes",
        ),
        (
            "how-to/offsets",
            "one file for up to {} keys",
            "ottla.offsets.layouts:MAX_GROUP",
            "count",
        ),
        ("how-to/spark", "ranges (at most {})", "ottla.spark.share.machine:MAX_RANGES", "count"),
        (
            "explanation/tiered-storage",
            "chunks of about {}",
            "ottla.tier.reading.read_ahead:CHUNK_BYTES",
            "bytes",
        ),
    ],
)
def test_limits_named_on_pages_are_those_of_the_code(
    page: str, sentence: str, source: str, unit: str
) -> None:
    text = " ".join((DOCS / f"{page}.md").read_text().split())
    assert sentence.format(shown(value(source), unit)) in text
