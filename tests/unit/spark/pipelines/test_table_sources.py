"""Sources that read the table of a topic, and flows that begin with a batch over it. No Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.spark.pipelines.backfill import keeping
from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.graph import edges, ordered, refuse_backfill, topics_of
from ottla.spark.pipelines.load import load
from tests.unit.spark.pipelines.test_graph import HEAD, a_flow, loaded, problems, write

if TYPE_CHECKING:
    from pathlib import Path

TABLE = HEAD + "source('o', table='orders')\n"


def test_a_source_may_be_the_table_of_a_topic(tmp_path: Path) -> None:
    definition = loaded(tmp_path, TABLE + a_flow("f", ["o"])).definition
    assert topics_of(definition.sources["o"]) == ["orders"]
    assert ("table of topic orders", "o") in set(edges(definition))
    text = (
        "sources:\n  o: {table: orders}\nflows:\n  f: {reads: o, sql: select 1, writes: console}\n"
    )
    assert load(write(tmp_path, text, "q.yaml")).definition.sources["o"].table == "orders"


@pytest.mark.parametrize(
    "more", ["topic='t'", "share_group='g'", "schema='a int'", "options={'store': 'segments'}"]
)
def test_a_table_has_columns_of_its_own(tmp_path: Path, more: str) -> None:
    found = problems(tmp_path, f"source('o', table='orders', {more})\n" + a_flow("f", ["o"]))
    assert any("source o reads the table of a topic" in one for one in found)


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        (a_flow("f", ["s"]), "no flow reads a table"),
        (a_flow("f", ["o", "s"]), "reads o and s, and a batch is over one table"),
        (a_flow("f", ["o"], more="mode='update'"), "mode update, not append"),
        ("source('l', table='t', start='latest')\n" + a_flow("f", ["l"]), "from latest, not from"),
        (a_flow("f", ["o"], more="delivery='exactly-once'"), "takes the batches of a stream"),
        (a_flow("f", ["o"], "table('x')"), 'give its table format="iceberg"'),
    ],
)
def test_case_92_what_cannot_begin_with_a_batch(tmp_path: Path, flow: str, said: str) -> None:
    definition = loaded(tmp_path, TABLE + flow).definition
    with pytest.raises(DefinitionError, match=said):
        refuse_backfill(definition, ordered(definition))


def test_case_92_other_flows_are_left_as_they_are(tmp_path: Path) -> None:
    body = a_flow("f", ["o"], "table('x', format='iceberg')") + a_flow(
        "g", ["s"], more="mode='update'"
    )
    definition = loaded(tmp_path, TABLE + body).definition
    refuse_backfill(definition, ordered(definition))


STREAM = "   +- ~StreamingRelationV2 org.apache, ottla, [a=~Aggregate]\n"


@pytest.mark.parametrize(
    ("plan", "kept"),
    [
        ("~Project [a#1]\n+- ~Filter (a#1 > 1)\n" + STREAM, []),
        ("~Aggregate [a#1]\n+- ~Project [a#1]\n" + STREAM, ["Aggregate"]),
        ("~Join Inner\n:" + STREAM + "+- Aggregate [b#1]\n   +- Relation [b#1] parquet\n", []),
        ("~Join Inner\n:" + STREAM + STREAM, ["Join"]),
        ("~Union false, false\n:" + STREAM + STREAM, []),
        ("~Deduplicate [a#1]\n" + STREAM, ["Deduplicate"]),
    ],
)
def test_case_92_operators_that_may_keep_state(plan: str, kept: list[str]) -> None:
    assert keeping(plan) == kept
