"""`ottla.table("orders")`: a topic as a table for pyarrow, Polars and DuckDB.

    orders = ottla.table("orders", bootstrap="127.0.0.1:9092")
    orders.to_polars().group_by("shop").sum()

Rules:

- A table is fixed when it is opened: the files of one snapshot, and the log from the snapshot's
  position to its end at that moment. Open it again for newer rows.
- Files are read when they are needed, with the wanted columns alone. The tail is read once, when it
  is first needed, and held in memory.
- `_day`, the UTC day of `_timestamp`, is a column of tables whose files are partitioned by day; a
  filter on it opens the files of these days alone.
- With `mode="latest"` it has the last row of each key, without tombstones. They are found when they
  are first needed, and held in memory.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ottla.client.cluster.cluster import API_TIMEOUT
from ottla.client.errors import BadArgument, MissingExtra
from ottla.client.security import PLAINTEXT
from ottla.tables.errors import FileGone
from ottla.tables.reading import TAIL_BYTES, pin, read_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from datetime import datetime

    import duckdb
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds

    from ottla.client.security import Security
    from ottla.tables.reading import At
    from ottla.tables.views import TableView

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


class TopicTable:
    """A topic's table and the tail of its log, as of the moment when it was opened."""

    def __init__(
        self,
        found: TableView,
        columns: pa.Schema,
        read: Callable[[], list[pa.RecordBatch]],
        store: Mapping[str, str] | None = None,
        *,
        is_latest: bool = False,
    ) -> None:
        from ottla.tables.archive import day_roots, with_day_field

        self.view = found
        self._columns = columns
        self._by_day = day_roots(found.files) is not None
        self._schema: pa.Schema = with_day_field(columns) if self._by_day else columns
        self._read = read
        self._store = dict(store or {})
        self._tail: pa.Table | None = None
        self._is_latest = is_latest
        self._latest: pa.Table | None = None
        self._lock = threading.Lock()

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.view.topic

    @property
    def snapshot(self) -> int | None:
        """The id of the table's snapshot; None if the table has none yet."""
        return self.view.snapshot

    @property
    def cut(self) -> dict[int, int]:
        """The first offset of each partition that is read from the log."""
        return dict(self.view.cut)

    @property
    def end(self) -> dict[int, int]:
        """Where each partition ends; give it as `at` to read the same rows again."""
        return dict(self.view.end)

    @property
    def schema(self) -> pa.Schema:
        """The value's columns, then those of the record, which begin with `_`."""
        return self._schema

    def dataset(self) -> ds.Dataset:
        """Files and tail as one `pyarrow.dataset`; filters and columns reach the files."""
        if not self._is_latest:
            return self._all()
        import pyarrow.dataset as ds

        from ottla.tables.archive import latest_rows

        with self._lock:
            found = self._latest
        if found is None:
            found = latest_rows(self._all())
            with self._lock:
                self._latest = found
        return ds.InMemoryDataset(found)

    def _all(self) -> ds.Dataset:
        import pyarrow.dataset as ds

        from ottla.tables.archive import dataset_of

        children: list[ds.Dataset] = []
        if self.view.files:
            children.append(dataset_of(self.view.files, self._schema, self._store))
        if self.view.tail or not children:
            children.append(ds.InMemoryDataset(self.tail()))
        found = children[0] if len(children) == 1 else ds.UnionDataset(self._schema, children)
        wanted = self._wanted()
        return found if wanted is None else found.filter(wanted)

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None) -> ds.Scanner:  # noqa: A002  # pyarrow's name
        """A scanner over the dataset, to read batch by batch; `filter` is pyarrow's expression."""
        names = None if columns is None else self._checked(columns)
        return self.dataset().scanner(columns=names, filter=filter)

    def to_arrow(self, columns: Sequence[str] | None = None, filter: Any = None) -> pa.Table:  # noqa: A002  # pyarrow's name
        """All rows, or those of a pyarrow expression, in memory."""
        try:
            return self.scanner(columns, filter).to_table()
        except FileNotFoundError as error:
            raise FileGone(
                f"a file of the table of {self.topic!r} was deleted since it was opened; open the "
                f"table again: {error}"
            ) from None

    def to_polars(self) -> pl.LazyFrame:
        """A lazy frame; filters and columns reach the files."""
        try:
            import polars as pl
        except ModuleNotFoundError:
            raise MissingExtra("to_polars needs polars: pip install polars") from None
        return pl.scan_pyarrow_dataset(self.dataset())

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection, name: str | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Make it known to a DuckDB connection, under the topic's name unless another is given."""
        known_as = self.topic if name is None else name
        connection.register(known_as, self.dataset())
        quoted = known_as.replace('"', '""')
        return connection.table(f'"{quoted}"')

    def tail(self) -> pa.Table:
        """The rows that are in the log alone; read once."""
        import pyarrow as pa

        from ottla.tables.archive import with_day

        with self._lock:
            if self._tail is None:
                rows = pa.Table.from_batches(self._read(), self._columns)
                self._tail = with_day(rows) if self._by_day else rows
            return self._tail

    def _wanted(self) -> Any:
        """The rows of the view, as an expression; None if all rows of files and tail are."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found: Any = None
        if self.view.bounds is not None:
            for number, end in self.view.bounds.items():
                below = (pc.field("_partition") == number) & (pc.field("_offset") < end)
                found = below if found is None else found | below
        at = pc.field("_timestamp")
        micros = pa.timestamp("us", "UTC")
        if self.view.since is not None:
            since = at >= pa.scalar(self.view.since.astimezone(UTC), micros)
            found = since if found is None else found & since
        if self.view.until is not None:
            until = at < pa.scalar(self.view.until.astimezone(UTC), micros)
            found = until if found is None else found & until
        return found

    def _checked(self, columns: Sequence[str]) -> list[str]:
        unknown = [one for one in columns if one not in self._schema.names]
        if unknown:
            known = ", ".join(self._schema.names)
            raise BadArgument(f"columns: {', '.join(unknown)} are not of {known}")
        return list(columns)


def table(
    topic: str,
    *,
    bootstrap: str | Sequence[str] = DEFAULT_BOOTSTRAP,
    at: At | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    tail: bool = True,
    accept_loss: bool = False,
    max_tail_bytes: int = TAIL_BYTES,
    security: Security = PLAINTEXT,
    api_timeout: float = API_TIMEOUT,
    registry_url: str | None = None,
    store: Mapping[str, str] | None = None,
    mode: Literal["all", "latest"] = "all",
) -> TopicTable:
    """Open the table of a topic, joined at an exact offset with the log's records after it.

    `at` ends it earlier: offsets by partition, or a time (the offsets of the first records at or
    after it). `since` and `until` choose rows by `_timestamp`. Times are datetimes, or text like
    2026-11-14T08:30Z. `tail=False` reads the table alone. `registry_url` is where schemas are, if
    the brokers do not say. `store` has settings of the object store with the files, such as
    `{"endpoint": URL, "region": NAME}`; what is missing comes from the environment.
    `mode="latest"` has the last row of each key, without tombstones.
    """
    return blocking(
        open_table(
            topic,
            bootstrap=bootstrap,
            at=at,
            since=since,
            until=until,
            tail=tail,
            accept_loss=accept_loss,
            max_tail_bytes=max_tail_bytes,
            security=security,
            api_timeout=api_timeout,
            registry_url=registry_url,
            store=store,
            mode=mode,
        )
    )


async def open_table(
    topic: str,
    *,
    bootstrap: str | Sequence[str] = DEFAULT_BOOTSTRAP,
    at: At | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    tail: bool = True,
    accept_loss: bool = False,
    max_tail_bytes: int = TAIL_BYTES,
    security: Security = PLAINTEXT,
    api_timeout: float = API_TIMEOUT,
    registry_url: str | None = None,
    store: Mapping[str, str] | None = None,
    mode: Literal["all", "latest"] = "all",
) -> TopicTable:
    """`table` for an event loop."""
    if mode not in ("all", "latest"):
        raise BadArgument(f"mode: expected all or latest, got {mode!r}")
    pinned = await pin(
        bootstrap,
        topic,
        at=at,
        since=since,
        until=until,
        tail=tail,
        accept_loss=accept_loss,
        security=security,
        api_timeout=api_timeout,
        registry_url=registry_url,
        store=store,
    )

    def read() -> list[pa.RecordBatch]:
        return blocking(
            read_tail(
                bootstrap,
                pinned,
                max_bytes=max_tail_bytes,
                security=security,
                api_timeout=api_timeout,
            )
        )

    return TopicTable(pinned.view, pinned.columns, read, store, is_latest=mode == "latest")


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run work in an event loop of its own, whether or not the caller has one."""
    with ThreadPoolExecutor(1, "ottla-table") as pool:
        return pool.submit(asyncio.run, work).result()
