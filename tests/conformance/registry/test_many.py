"""A registry of 100,000 subjects; how long it takes is in `benchmarks.tables`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from tests.support.many_schemas import fill_schemas, schema_of, subject_of
from tests.support.registry_http import ask

if TYPE_CHECKING:
    from pathlib import Path

SUBJECTS = 100_000


def is_loaded(url: str) -> bool:
    """A request waits until all is read, which a busy machine takes longer for than a client."""
    try:
        return ask(url, "GET", f"/schemas/ids/{SUBJECTS}").status == 200
    except TimeoutError:
        return False


@pytest.mark.long
def test_case_24_a_registry_of_many_subjects_starts_from_its_topic(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        fill_schemas(broker.bootstrap, SUBJECTS)
    with EmbeddedBroker(tmp_path, registry=True) as broker:
        url = broker.registry_url
        while not is_loaded(url):
            pass
        for number in (1, SUBJECTS // 2, SUBJECTS):
            found = ask(url, "GET", f"/schemas/ids/{number}").body["schema"]
            assert json.loads(found) == json.loads(schema_of(number))
            path = f"/subjects/{subject_of(number)}/versions/latest"
            assert ask(url, "GET", path).body["id"] == number
        subjects = ask(url, "GET", "/subjects").body
        assert subjects == [subject_of(number) for number in range(1, SUBJECTS + 1)]
        body = {"schema": schema_of(SUBJECTS + 1)}
        assert ask(url, "POST", "/subjects/new-value/versions", body).body["id"] == SUBJECTS + 1
