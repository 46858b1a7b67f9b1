"""`ottla sql` from the outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.testing.embedded import EmbeddedBroker
from tests.support.table_worker import fill, new_topic, take

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    directory: Path = tmp_path_factory.mktemp("tables")
    one, two = new_topic(broker, 2), new_topic(broker)
    fill(broker, one, range(20), partitions=2)
    fill(broker, two, range(5))
    take(broker, directory, one, two)
    fill(broker, one, range(20, 26), partitions=2)
    return one, two


def run(broker: EmbeddedBroker, statement: str, *args: str) -> Result:
    return CliRunner().invoke(app, ["sql", statement, "--bootstrap", broker.bootstrap, *args])


def lines(broker: EmbeddedBroker, statement: str, *args: str) -> list[object]:
    result = run(broker, statement, "--json", *args)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(broker: EmbeddedBroker, statement: str, *args: str) -> str:
    result = run(broker, statement, *args)
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    return line


def test_case_95_two_topics_are_joined(broker: EmbeddedBroker, topics: tuple[str, str]) -> None:
    one, two = topics
    statement = (
        f"select a.value as v, b._key as k from {one} a join {two} b on a.value = b.value "
        "where b._offset > 2 order by 1"
    )
    assert lines(broker, statement) == [{"v": "3", "k": "key 3"}, {"v": "4", "k": "key 4"}]


def test_case_95_at_and_no_tail(broker: EmbeddedBroker, topics: tuple[str, str]) -> None:
    count = f"select count(*) as n from {topics[0]}"
    assert lines(broker, count) == [{"n": 26}]
    assert lines(broker, count, "--no-tail") == [{"n": 20}]
    assert lines(broker, count, "--at", "2025-11-14T12:00:05Z") == [{"n": 5}]
    assert lines(broker, count, "--at", '{"0": 3, "1": 12}') == [{"n": 15}]
    assert "offset 99 of partition 0 is not between" in refused(broker, count, "--at", '{"0": 99}')
    assert "is no time" in refused(broker, count, "--at", "yesterday")


def test_every_column_can_be_shown(broker: EmbeddedBroker, topics: tuple[str, str]) -> None:
    [row] = lines(broker, f"select * from {topics[1]} where _offset = 4")
    assert row == {
        "value": "4",
        "_partition": 0,
        "_offset": 4,
        "_timestamp": "2025-11-14T12:00:04+00:00",
        "_timestamp_type": 0,
        "_key": "key 4",
        "_headers": None,
        "_schema_id": None,
        "_tombstone": False,
        "_day": "2025-11-14",
    }


@pytest.mark.long
def test_columns_are_named_as_in_sql(broker: EmbeddedBroker) -> None:
    """Fault: underscores were blanks, and a second column of a name got a number."""
    shown = run(broker, 'select 1 as _offset, count(*), 2 as "[b]", 3 as a, 4 as a')
    assert shown.stdout.splitlines()[0].split() == ["_offset", "count_star()", "[b]", "a", "a"]


@pytest.mark.long
def test_rows_for_people_and_for_spreadsheets(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    statement = f"select value, _offset, null as x from {topics[1]} order by 2 limit 2"
    assert run(broker, statement, "--csv").stdout == "value,_offset,x\n0,0,\n1,1,\n"
    shown = run(broker, statement).stdout
    assert [line.split() for line in shown.splitlines()][2:] == [["0", "0", "-"], ["1", "1", "-"]]
    empty = run(broker, f"select value from {topics[1]} where false", "--csv")
    assert empty.stdout == "value\n"
    assert "not both" in run(broker, statement, "--csv", "--json").stderr


@pytest.mark.parametrize(
    "statement",
    [
        "drop table {0}",
        "copy {0} to '/tmp/stolen.csv'",
        "create table x as select * from {0}",
        "insert into {0} select * from {0}",
        "attach '/tmp/x.db'",
        "set threads = 1",
        "install httpfs",
    ],
)
def test_case_95_only_selects_are_run(
    broker: EmbeddedBroker, topics: tuple[str, str], statement: str
) -> None:
    assert "is refused: tables of topics are read only" in refused(
        broker, statement.format(topics[0])
    )


@pytest.mark.long
def test_case_95_what_else_is_refused(broker: EmbeddedBroker, topics: tuple[str, str]) -> None:
    one, _ = topics
    assert f"did you mean {one}" in refused(broker, f"select * from {one}x")
    assert "expected one statement, got 2" in refused(broker, f"select 1; select * from {one}")
    assert "expected one statement, got 0" in refused(broker, " ")
    assert "syntax error" in refused(broker, "select from where")
    assert "price" in refused(broker, f"select price from {one}")
    for outside in ("read_csv('/etc/passwd')", "read_text('/etc/passwd')"):
        assert "disabled" in refused(broker, f"select * from {outside}")


@pytest.mark.long
def test_statements_without_topics_and_with_names_of_their_own(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    assert lines(broker, "select 1 + 1 as two") == [{"two": 2}]
    named = f"with few as (select * from {topics[1]} limit 3) select count(*) as n from few"
    assert lines(broker, named) == [{"n": 3}]
    quoted = f'select count(*) as n from "{topics[1]}"'
    assert lines(broker, quoted) == [{"n": 5}]
