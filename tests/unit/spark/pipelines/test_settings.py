"""YAML beside a pipeline, and pipelines that are YAML alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.load import load
from ottla.spark.pipelines.model import ToConsole, ToTable, ToTopic
from ottla.spark.pipelines.places import local_path

PYTHON = """
from ottla.spark.pipelines import console, flow, source
source("orders", topic="orders", options={"maxOffsetsPerTrigger": 5, "includeHeaders": True})
@flow("show", reads=["orders"], writes=console(), trigger="1s")
def show(orders):
    return orders
"""
SQL = """
sources:
  orders: {topic: orders, schema: "shop string, amount double"}
flows:
  totals:
    reads: orders
    sql: SELECT shop, sum(amount) AS amount FROM orders GROUP BY shop
    writes: {topic: totals, key: shop, partitions: 3}
    mode: update
  archive:
    reads: [orders]
    sql: SELECT * FROM orders
    writes: {table: orders, partition_by: [shop]}
    reject: {to: bad, when: amount IS NULL}
  show: {reads: totals, sql: SELECT * FROM totals, writes: console}
"""


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)
    return directory / next(iter(files)).replace("__", ".")


def test_publishing_is_on_unless_the_yaml_says_no(tmp_path: Path) -> None:
    file = write(tmp_path, p__py=PYTHON, p__yaml="publish: false\n", p__on__yaml="publish: true\n")
    assert load(file).settings.publish is False
    assert load(file, env="on").settings.publish is True
    write(tmp_path, p__yaml="publish: 7\n")
    with pytest.raises(DefinitionError, match="publish: expected true or false, got 7"):
        load(file)


def test_the_environment_comes_before_the_base_and_both_before_the_file(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        p__py=PYTHON,
        p__yaml="bootstrap: one:9092\nspark: {a: 1, b: true}\n"
        "flows: {show: {trigger: 2s, read_options: {minPartitions: 4}}}\n",
        p__prod__yaml="bootstrap: two:9092\nspark: {b: 2}\nflows: {show: {trigger: 30s}}\n"
        "sources: {orders: {topic: prod-orders, options: {maxOffsetsPerTrigger: 9}}}\n",
    )
    base = load(file)
    assert (base.settings.bootstrap, base.definition.flows["show"].trigger) == ("one:9092", "2s")
    prod = load(file, env="prod")
    assert prod.settings.bootstrap == "two:9092"
    assert prod.settings.spark == {"a": "1", "b": "2"}
    assert prod.definition.flows["show"].trigger == "30s"
    assert prod.definition.flows["show"].read_options == {"minPartitions": "4"}
    source = prod.definition.sources["orders"]
    assert source.topic == "prod-orders"
    assert source.options == {"maxOffsetsPerTrigger": "9", "includeHeaders": "true"}


def test_flows_of_one_statement_need_no_python(tmp_path: Path) -> None:
    definition = load(write(tmp_path, p__yaml=SQL)).definition
    assert definition.flows["totals"].writes == ToTopic("totals", "shop", 3)
    assert definition.flows["archive"].writes == ToTable("orders", partition_by=("shop",))
    assert definition.flows["show"].writes == ToConsole()
    assert definition.flows["show"].reads == ("totals",)
    rule = definition.flows["archive"].reject
    assert rule is not None
    assert (rule.to.name, rule.when) == ("bad", "amount IS NULL")


def test_yaml_adds_flows_to_a_python_file(tmp_path: Path) -> None:
    extra = "flows: {raw: {reads: orders, sql: SELECT * FROM orders, writes: {table: raw}}}"
    assert list(load(write(tmp_path, p__py=PYTHON, p__yml=extra)).definition.flows) == [
        "show",
        "raw",
    ]


def test_secrets_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, p__py=PYTHON, p__yaml="kafka: {sasl.password: 'x${P8_SECRET}y'}")
    with pytest.raises(DefinitionError, match="P8_SECRET is not set"):
        load(file)
    monkeypatch.setenv("P8_SECRET", "12")
    assert load(file).settings.kafka == {"sasl.password": "x12y"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bootstrp: x", "bootstrp is not known; did you mean bootstrap?"),
        ("flows: {show: {triger: 1s}}", "did you mean trigger?"),
        ("flows: {shwo: {trigger: 1s}}", "is not a flow of the file; did you mean show?"),
        ("flows: {new: {trigger: 1s}}", "is not a flow of the file; did you mean|give it `sql`"),
        ("sources: {orders: {topik: x}}", "did you mean topic?"),
        ("flows: [show]", "expected names with values"),
        ("flows: {x: {sql: a, reads: orders, writes: {file: x}}}", "give console"),
        ("flows: {x: {sql: a, reads: 3, writes: console}}", "a list of names"),
        ("flows: {x: {sql: a, reads: orders, inline: maybe}}", "true or false"),
        ("flows: {show: {reject: {to: x}}}", "give both"),
        ("flows: {show: {sql: SELECT 1}}", "either a function or `sql`"),
        ("master: local\nremote: sc://x", "leave one out"),
        ("a: [", "is not YAML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected.replace("?", r"\?")):
        load(write(tmp_path, p__py=PYTHON, p__yaml=text))


def test_an_environment_without_a_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"there is no .*p\.prod\.yaml"):
        load(write(tmp_path, p__py=PYTHON), env="prod")


def test_where_things_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, p__py=PYTHON)
    places = load(file).places
    assert places.state == tmp_path / "ottla-state" / "p"
    assert places.checkpoints == str(tmp_path / "ottla-state" / "p" / "checkpoints")
    assert places.are_local
    write(tmp_path, p__yaml="checkpoints: s3a://bucket/c\ntables: file:///t")
    places = load(file).places
    assert not places.are_local
    assert places.checkpoint(load(file).definition.flows["show"]) == "s3a://bucket/c/show"
    assert places.table(ToTable("x")) == "file:///t/x"
    assert local_path("file:///t/x") == Path("/t/x")
    assert load(file, state="here").places.checkpoints == str(tmp_path / "here" / "checkpoints")
