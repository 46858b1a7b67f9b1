"""Pipelines connect as their `kafka` settings or the file of --command-config say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import ottla
from ottla.cli.whole import app
from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.graph import ordered
from ottla.spark.pipelines.load import load
from ottla.spark.pipelines.preflight import prepare, security_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIPELINE = """
from ottla.spark.pipelines import flow, source, topic

source("records", topic="records")

@flow("copied", reads=["records"], writes=topic("copies"))
def copied(records):
    return records
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(security=ottla.Secured(users={"alice": "a"})) as broker:
        broker.create_topic("records")
        yield broker


def kafka(broker: ottla.EmbeddedBroker) -> dict[str, str]:
    found = broker.options("alice", "java")
    del found["bootstrap.servers"]
    return found


def test_topics_are_made_over_sasl_ssl(broker: ottla.EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(PIPELINE)
    definition = load(file).definition
    flows = ordered(definition)
    settings = kafka(broker)
    assert security_of(settings) == broker.security("alice")
    prepare(broker.bootstrap, definition, flows, settings)
    with ottla.sync.Admin(broker.bootstrap, security=broker.security("alice")) as admin:
        assert "copies" in {one.name for one in admin.list_topics()}
    wrong = settings | {"sasl.jaas.config": settings["sasl.jaas.config"].replace('"a"', '"canary"')}
    with pytest.raises(EnvironmentProblem, match="cannot log in as 'alice'") as failure:
        prepare(broker.bootstrap, definition, flows, wrong)
    assert "canary" not in str(failure.value)
    with pytest.raises(DefinitionError, match=r"did you mean sasl\.password"):
        prepare(broker.bootstrap, definition, flows, {"sasl.pasword": "canary"})


def test_the_file_of_the_command_reaches_the_pipeline(
    broker: ottla.EmbeddedBroker, tmp_path: Path
) -> None:
    """A topic that is missing is found out before Spark starts, so somebody must have logged in."""
    file = tmp_path / "pipeline.py"
    file.write_text(PIPELINE.replace('topic="records"', 'topic="missing"'))
    command = ["run", str(file), "--state", str(tmp_path / "state")]
    command += ["--bootstrap", broker.bootstrap]
    config = ["--command-config", str(broker.properties_file("alice"))]
    result = CliRunner().invoke(app, [*command, *config])
    assert "there is no topic missing" in result.stderr
    result = CliRunner().invoke(app, command)
    assert "it wants TLS: set security.protocol" in result.stderr
