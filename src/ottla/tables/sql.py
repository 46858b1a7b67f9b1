"""SQL over topics, by DuckDB: each table that a statement names is a topic.

- One statement, and only a select: nothing is written, no file is opened but those of the tables,
  and no extension is loaded.
- All topics of a statement are opened before it runs; each is fixed from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import MissingExtra
from ottla.tables.errors import BadStatement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import duckdb

    from ottla.tables.topic_table import TopicTable

ROWS_AT_ONCE: Final = 1024

_FENCE: Final = (
    "set TimeZone='UTC'",
    "set autoinstall_known_extensions=false",
    "set autoload_known_extensions=false",
    "set python_enable_replacements=false",
    "set enable_external_access=false",
    "set lock_configuration=true",
)


class Query:
    """A statement with its topics, ready to run; close it when it is done with."""

    def __init__(self, statement: str, open_topic: Callable[[str], TopicTable]) -> None:
        try:
            import duckdb
        except ModuleNotFoundError:
            raise MissingExtra("SQL needs the sql extra: pip install 'ottla[sql]'") from None
        self._errors = duckdb.Error
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect()
        try:
            for setting in _FENCE:
                self._connection.execute(setting)
            self._statement = self._only_select(statement, duckdb.StatementType.SELECT)
            for topic in sorted(self._connection.get_table_names(statement)):
                open_topic(topic).to_duckdb(self._connection, topic)
        except duckdb.Error as error:
            self.close()
            raise BadStatement(_first_line(error)) from None
        except BaseException:
            self.close()
            raise
        self.columns: list[str] = []

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Run it; `columns` has the names when the first row, or the end, is there."""
        try:
            # By Arrow: DuckDB's own rows need pytz for times with a zone.
            found = self._connection.sql(self._statement).to_arrow_reader(ROWS_AT_ONCE)
            self.columns = found.schema.names
            for batch in found:
                yield from zip(*(one.to_pylist() for one in batch.columns), strict=True)
        except self._errors as error:
            raise BadStatement(_first_line(error)) from None

    def close(self) -> None:
        """Release memory and files."""
        self._connection.close()

    def _only_select(self, text: str, select: object) -> duckdb.Statement:
        found = self._connection.extract_statements(text)
        if len(found) != 1:
            raise BadStatement(f"expected one statement, got {len(found)}")
        if found[0].type != select:
            raise BadStatement(
                f"{found[0].type.name.lower()} is refused: tables of topics are read only, so "
                "write a select"
            )
        return found[0]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
