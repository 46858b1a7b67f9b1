"""`ottla bench` from the outside, with Arrow and without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from tests.integration.cli.test_base_install import run

if TYPE_CHECKING:
    from ottla.testing.embedded import EmbeddedBroker

WAYS = ("produce", "read", "share")
SMALL = ("--records", "300", "--size", "10", "--partitions", "2", "--json")


@pytest.mark.parametrize("arrow", [True, False])
def test_every_way_is_measured_and_nothing_stays(ottla_broker: EmbeddedBroker, arrow: bool) -> None:
    args = ["bench", *SMALL, "--bootstrap", ottla_broker.bootstrap]
    if arrow:
        result = CliRunner().invoke(app, args)
        status, said = result.exit_code, result.stdout
    else:
        done = run(*args)
        status, said = done.returncode, done.stdout
    assert status == 0, said
    trips, *rates = json.loads(said)
    assert 0 < trips["p50_ms"] <= trips["p99_ms"]
    how = "in columns" if arrow else "one by one"
    assert [one["what"] for one in rates] == [f"{what}, {how}" for what in WAYS]
    assert all(one["records_per_second"] > 0 for one in rates)
    for kind in ("topic", "share-group"):
        listed = CliRunner().invoke(
            app, [kind, "list", "--json", "--bootstrap", ottla_broker.bootstrap]
        )
        assert "ottla-bench" not in listed.stdout


def test_no_broker_is_said() -> None:
    result = CliRunner().invoke(app, ["bench", "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "is a broker running there?" in result.stderr
