"""The reference is complete: all public names, all options, all limits; each limit has a number."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla
from ottla.metadata.config.broker_keys import BROKER_CONFIGS
from ottla.metadata.config.keys import GROUP_CONFIGS, TOPIC_CONFIGS
from ottla.spark.options import NAMES
from ottla.spark.sink.options import SINK_NAMES
from scripts.docs_hooks import PYTHON, configuration, python_api
from scripts.docs_limits import LIMITS, limits_page

DOCS = Path(__file__).parents[2] / "docs"


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


def test_every_option_of_spark_is_described() -> None:
    page = (DOCS / "reference" / "spark-options.md").read_text()
    assert [name for name in (*NAMES, *SINK_NAMES) if f"`{name}`" not in page] == []


def test_every_key_is_described() -> None:
    page = configuration().replace("<wbr>", "")
    for table in (BROKER_CONFIGS, TOPIC_CONFIGS, GROUP_CONFIGS):
        assert [key for key in table if f"<code>{key}</code>" not in page] == []


def test_every_limit_has_a_number_and_a_reason() -> None:
    page = limits_page()
    rows = [row for rows in LIMITS.values() for row in rows]
    assert all(row.reason for row in rows)
    assert "nan" not in page
    assert page.count("\n| ") == len(rows) + len(LIMITS)
