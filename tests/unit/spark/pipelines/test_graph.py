"""What a pipeline file declares, and all that the check finds wrong with it. No Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.graph import edges, ordered, sources_of, upstream_of
from ottla.spark.pipelines.load import load
from tests.support.three_flows import THREE_FLOWS

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.spark.pipelines.load import Pipeline

HEAD = (
    "from ottla.spark.pipelines import *\n"
    "source('s', topic='t')\nsource('q', topic='t', share_group='g')\n"
)


def write(directory: Path, text: str, name: str = "p.py") -> Path:
    file = directory / name
    file.write_text(text)
    return file


def loaded(directory: Path, text: str) -> Pipeline:
    return load(write(directory, text))


def problems(directory: Path, body: str) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        loaded(directory, HEAD + body)
    return list(caught.value.problems)


def a_flow(name: str, reads: list[str], writes: str = "topic('out')", more: str = "") -> str:
    return (
        f"@flow({name!r}, reads={reads!r}, writes={writes}{', ' + more if more else ''})\n"
        f"def {name}({', '.join(reads)}): return {reads[0]}\n"
    )


def test_case_48_three_flows_and_an_intermediate_topic_are_in_order(tmp_path: Path) -> None:
    definition = loaded(tmp_path, THREE_FLOWS).definition
    assert [one.name for one in ordered(definition)] == ["clean", "totals", "archive"]
    archive = definition.flows["archive"]
    assert upstream_of(definition, archive) == ["clean"]
    assert sources_of(definition, archive) == []
    assert sources_of(definition, definition.flows["clean"]) == [definition.sources["orders"]]
    assert [one.name for one in definition.flows["clean"].topics_written()] == ["clean", "bad"]
    assert ("clean", "topic bad (rejected)") in set(edges(definition))
    assert definition.flows["large"].reads == ("clean",)
    assert [hook.flow for hook in definition.hooks] == ["totals"]


def test_case_48_a_circle_is_found(tmp_path: Path) -> None:
    body = a_flow("a", ["c"]) + a_flow("b", ["a"]) + a_flow("c", ["b", "s"])
    [problem] = problems(tmp_path, body)
    assert "in a cycle: a <- c <- b <- a" in problem


def test_case_48_a_circle_through_a_topic_is_found(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, a_flow("a", ["s"]) + a_flow("b", ["a"], "topic('t')"))
    assert "cycle endlessly" in problem


@pytest.mark.parametrize("name", ["table('x')", "table('./there/x')"])
def test_case_48_two_writers_to_a_table_are_found(tmp_path: Path, name: str) -> None:
    [problem] = problems(tmp_path, a_flow("a", ["s"], name) + a_flow("b", ["s"], name))
    assert "a and b write to one table" in problem


def test_two_writers_to_a_topic_are_well(tmp_path: Path) -> None:
    assert loaded(tmp_path, HEAD + a_flow("a", ["s"]) + a_flow("b", ["s"]))


def test_case_48_an_unknown_name_is_found_with_the_near_one(tmp_path: Path) -> None:
    text = HEAD.replace("'s'", "'orders'") + a_flow("a", ["ordesr"])
    with pytest.raises(DefinitionError, match="reads ordesr, which is not declared; did you mean"):
        loaded(tmp_path, text)


def test_case_38_a_queue_with_asynchronous_progress_is_refused(tmp_path: Path) -> None:
    body = a_flow("a", ["q"], more="options={'asyncProgressTrackingEnabled': True}")
    [problem] = problems(tmp_path, body)
    assert "before their batch is safe" in problem
    write(tmp_path, "flows: {a: {options: {ASYNCPROGRESSTRACKINGENABLED: true}}}", "p.yaml")
    [problem] = problems(tmp_path, a_flow("a", ["q"]))
    assert "before their batch is safe" in problem
    write(tmp_path, "flows: {a: {options: {asyncProgressTrackingEnabled: false}}}", "p.yaml")
    assert loaded(tmp_path, HEAD + a_flow("a", ["q"]))


def test_case_38_also_through_an_inline_flow(tmp_path: Path) -> None:
    inline = "@flow('i', inline=True)\ndef i(q): return q\n"
    body = inline + a_flow("a", ["i"], more="options={'asyncProgressTrackingEnabled': 'true'}")
    [problem] = problems(tmp_path, body)
    assert "flow a reads a queue" in problem


def test_what_would_break_exactly_once_is_refused(tmp_path: Path) -> None:
    once = "delivery='exactly-once'"
    named = once + ", options={'sinkId': 'same'}"
    [problem] = problems(tmp_path, a_flow("a", ["s"], more=named) + a_flow("b", ["s"], more=named))
    assert "flows a and b have one sinkId (same)" in problem
    with_progress = once + ", options={'asyncProgressTrackingEnabled': True}"
    [problem] = problems(tmp_path, a_flow("a", ["s"], more=with_progress))
    assert "flow a is delivered exactly once with asynchronous progress" in problem
    write(tmp_path, "spark: {spark.speculation: true}", "p.yaml")
    [problem] = problems(tmp_path, a_flow("a", ["s"], more=once) + a_flow("b", ["s"]))
    assert "flow a is delivered exactly once, and spark.speculation would" in problem


def test_checkpoints_that_are_one_or_inside_each_other_are_found(tmp_path: Path) -> None:
    body = a_flow("a", ["s"]) + a_flow("b", ["s"])
    write(tmp_path, "flows: {a: {checkpoint: x}, b: {checkpoint: x}}", "p.yaml")
    assert "a and b have one checkpoint" in problems(tmp_path, body)[0]
    write(tmp_path, "flows: {a: {checkpoint: x/y}, b: {checkpoint: x}}", "p.yaml")
    assert "inside each other" in problems(tmp_path, body)[0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", "declares no flow"),
        ("@flow('a')\ndef a(s): return s\n", "writes nothing"),
        (a_flow("a", ["s"], more="inline=True"), "is inline and writes"),
        (a_flow("a", ["s"], more="trigger='soon'"), "is a time such as"),
        (a_flow("a", ["s"], more="mode='replace'"), "mode is one of"),
        (a_flow("a", ["s"], more="delivery='twice'"), "delivery is one of"),
        (a_flow("a", ["s"], "console()", "delivery='exactly-once'"), "exactly-once is for topics"),
        ("@flow('a', reads=['s'], writes=console())\ndef a(t): return t\n", "takes (s), not (t)"),
        ("source('x')\n" + a_flow("a", ["x"]), "has no topic"),
        (a_flow("a", ["q"]) + a_flow("b", ["q"]), "2 flows read the queue q"),
        (a_flow("a", ["s"]) + "on_batch('b')(print)\n", "names the flow b"),
        (a_flow("a", ["s"]) + "samples('a')(list)\n", "no source with a topic"),
        (a_flow("a", ["s"]) + "source('a', topic='x')\n", "two things are called a"),
        ("source('a b', topic='x')\n", "is not a valid name"),
        ("reject(to='x', when='y')(print)\n" + a_flow("a", ["s"]), "needs @flow beside it"),
        ("import nothing_of_that_name\n", "line 4: No module named"),
        ("def f(:\n", "line 4: "),
        ("1 / 0\n", "line 4: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(tmp_path: Path, body: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(tmp_path, body))


def test_a_file_that_misses_a_package_of_ours_is_not_to_blame(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"pip install 'ottla\[spark\]'"):
        loaded(tmp_path, "import pyspark.no_such_module")


@pytest.mark.parametrize(
    ("writes", "more", "said"),
    [
        ("table('x', format='iceberg')", "mode='update'", "mode append or complete"),
        ("table('x', format='iceberg', partition_by=['week(at)'])", "", "not 'week(at)'"),
        ("table('x', format='iceberg', options={'password': 1})", "", "no option of an Iceberg"),
        ("table('s3a://b/x', format='iceberg', options={'catalog': 'x'})", "mode='no'", "mode is"),
    ],
)
def test_bad_iceberg_tables_are_named(tmp_path: Path, writes: str, more: str, said: str) -> None:
    [problem] = problems(tmp_path, a_flow("f", ["s"], writes, more))
    assert said in problem


def test_an_iceberg_table_is_no_stream_and_has_no_rejects(tmp_path: Path) -> None:
    body = a_flow("f", ["s"], "table('x', format='iceberg')") + a_flow("g", ["f"])
    [problem] = problems(tmp_path, body)
    assert problem.startswith("flow g reads f, which writes an Iceberg table")
    body = "@reject(to='bad', when='true')\n" + a_flow("f", ["s"], "table('x', format='iceberg')")
    [problem] = problems(tmp_path, body)
    assert "which @reject is not" in problem


def test_tables_elsewhere_need_a_catalogue(tmp_path: Path) -> None:
    write(tmp_path, "tables: s3a://bucket/tables", "p.yaml")
    [problem] = problems(tmp_path, a_flow("f", ["s"], "table('x', format='iceberg')"))
    assert "'catalog'" in problem
    given = "table('x', format='iceberg', options={'catalog': 'postgresql://h/d'})"
    loaded(tmp_path, HEAD + a_flow("f", ["s"], given, "delivery='exactly-once'"))
