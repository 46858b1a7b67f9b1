"""`ottla table ...`: keep topics as Iceberg tables, and look at these tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    complain,
    fail,
    security,
    sentences,
    with_admin,
)
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from ottla.cli.output import Value
    from ottla.client.admin.admin import Admin
    from ottla.tables.format import TableFormat, TableState
    from ottla.tables.inspecting import Finding, TableStatus
    from ottla.tables.settings import TablesFile, TopicSettings, WorkerSettings
    from ottla.tables.upkeep import Upkeep

    T = TypeVar("T")

app = typer.Typer(help="Keep topics as Iceberg tables.", no_args_is_help=True)

HERE = "ottla-tables"

Topic = Annotated[str, typer.Argument(help="The topic.")]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="TOML with keys of the worker, and keys of topics below [topics.NAME]."
    ),
]
Warehouse = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help=f"Where files of tables go. [default: the directory {HERE} here]"
    ),
]
Catalog = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="sqlite:///FILE or postgresql://... [default: catalog.db in a local warehouse]",
    ),
]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Namespace of the tables. [default: ottla]")
]


@app.command()
def run(
    topics: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Only these topics. [default: all with a table]"),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Take what is there now, then stop.")
    ] = False,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Write the tables of topics that have ottla.table.enable=true, until stopped.

    \b
    Examples:
        ottla topic alter orders --config ottla.table.enable=true
        ottla table run --warehouse s3://lake/tables --catalog postgresql://db/lake
        ottla table run --once --topics orders
    """
    import logging

    logging.basicConfig(format="ottla: %(message)s", level=logging.WARNING)
    file = _file(config)
    settings = _settings(file, warehouse, catalog, namespace)
    names = None if topics is None else [one.strip() for one in topics.split(",")]
    reached = _work(bootstrap, settings, names, file, once=once)
    if not once:
        return
    missing = sorted({*(names or ())} - reached.keys())
    if missing:
        fail(f"{missing[0]} has no table; set ottla.table.enable=true on the topic")
    if as_json:
        print_json({topic: {str(one): at for one, at in p.items()} for topic, p in reached.items()})
        return
    for topic, position in reached.items():
        typer.echo(f"{topic}: {_offsets(position)}")
    if not reached:
        typer.echo("no topic has a table; set ottla.table.enable=true on one")


@app.command()
def status(
    topic: Annotated[
        str | None, typer.Argument(help="The topic. [default: all with a table]")
    ] = None,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show positions, lag and troubles of tables; status 1 if something is wrong.

    \b
    Examples:
        ottla table status
        ottla table status orders --json
    """
    from ottla.clock import SYSTEM
    from ottla.tables.inspecting import status as look

    file = _file(config)

    async def command(
        admin: Admin, tables: TableFormat, found: list[TopicSettings]
    ) -> list[TableStatus]:
        return [await look(admin, tables, one, SYSTEM.wall_ms()) for one in found]

    settings = _settings(file, warehouse, catalog, namespace)
    rows = _with_tables(bootstrap, timeout, settings, topic, file, command)
    if as_json:
        print_json([_status(one) for one in rows])
    elif rows:
        print_table(
            [
                {
                    "topic": one.topic,
                    "table": one.table,
                    "position": _offsets(one.position),
                    "lag": one.lag,
                    "seconds": round(one.seconds),
                    "rows": one.rows,
                    "files": one.files,
                    "small": one.small_files,
                    "invalid": one.invalid,
                    "holes": one.holes,
                }
                for one in rows
            ],
            (
                "topic",
                "table",
                "position",
                "lag",
                "seconds",
                "rows",
                "files",
                "small",
                "invalid",
                "holes",
            ),
        )
    else:
        typer.echo("no topic has a table")
    for one in rows:
        if one.problem is not None:
            complain(f"{one.topic}: {one.problem}")
    if any(one.problem is not None for one in rows):
        raise typer.Exit(1)


@app.command()
def show(
    topic: Topic,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show columns with their ids, partition, location and position of a table.

    \b
    Examples:
        ottla table show orders
    """
    file = _file(config)

    async def command(
        _: Admin, tables: TableFormat, found: list[TopicSettings]
    ) -> TableState | None:
        import asyncio

        return await asyncio.to_thread(tables.load, found[0].table)

    settings = _settings(file, warehouse, catalog, namespace)
    state = _with_tables(bootstrap, timeout, settings, topic, file, command)
    if state is None:
        fail(f"{topic} has no table yet; is ottla table run running?")
    if as_json:
        print_json(_shown(state))
    else:
        _show(state)


@app.command()
def verify(
    topic: Topic,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Compare N windows of 100,000 offsets. [default: all]"
        ),
    ] = None,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Compare a table with its log: no gap, no duplicate, same bytes. Status 1 if they differ.

    \b
    Examples:
        ottla table verify orders
        ottla table verify orders --sample 10
    """
    from ottla.tables.inspecting import verify as compare

    file = _file(config)

    async def command(
        admin: Admin, tables: TableFormat, found: list[TopicSettings]
    ) -> list[Finding]:
        return await compare(bootstrap, security(), admin, tables, found[0], sample=sample)

    settings = _settings(file, warehouse, catalog, namespace)
    findings = _with_tables(bootstrap, timeout, settings, topic, file, command)
    wrong = [one for one in findings if one.is_wrong]
    if as_json:
        print_json([_finding(one) for one in findings])
    else:
        for one in wrong:
            complain(
                f"{topic}-{one.partition} offsets {one.start} to {one.end}: {one.missing} missing, "
                f"{one.doubled} twice, {one.foreign} not in the log, {one.different} different"
            )
        offsets = sum(one.end - one.start for one in findings)
        typer.echo(f"{offsets} offsets compared, {len(wrong)} of {len(findings)} windows differ")
    if wrong:
        raise typer.Exit(1)


@app.command()
def resume(
    topic: Topic,
    replay: Annotated[
        bool, typer.Option("--replay", help="Take the rows that are gone again from the log.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Do without them; they are recorded as a hole.")
    ] = False,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Let a table go on that was rolled back to an older snapshot.

    \b
    Examples:
        ottla table resume orders --replay
    """
    from ottla.tables.position import dump_offsets, is_rolled_back, resumption

    if replay == accept:
        raise typer.BadParameter("give --replay or --accept", param_hint="--replay")
    file = _file(config)

    async def command(_: Admin, tables: TableFormat, found: list[TopicSettings]) -> str:
        import asyncio
        from uuid import uuid4

        state = await asyncio.to_thread(tables.load, found[0].table)
        if state is None or not is_rolled_back(state):
            return f"{topic}: the table was not rolled back; nothing to do"
        commit = resumption(state, uuid4().hex, replay=replay)
        made = await asyncio.to_thread(tables.commit, state, commit)
        return f"{topic}: goes on at {dump_offsets(made.next)}"

    settings = _settings(file, warehouse, catalog, namespace)
    typer.echo(_with_tables(bootstrap, timeout, settings, topic, file, command))


@app.command()
def retire(
    topic: Topic,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Rename the table of a topic that was deleted and recreated; the next round makes a new one.

    \b
    Examples:
        ottla table retire orders
    """
    file = _file(config)

    async def command(admin: Admin, tables: TableFormat, found: list[TopicSettings]) -> str:
        import asyncio

        from ottla.tables.topics import look

        state = await asyncio.to_thread(tables.load, found[0].table)
        log = await look(admin, found[0], is_new=False)
        if state is None or state.topic_id == log.topic_id:
            return f"{topic}: the table is the topic's own; nothing to do"
        name = f"{found[0].table}__{state.changed_ms}"
        await asyncio.to_thread(tables.rename, found[0].table, name)
        return f"{topic}: the old table is {name} now"

    settings = _settings(file, warehouse, catalog, namespace)
    typer.echo(_with_tables(bootstrap, timeout, settings, topic, file, command))


@app.command()
def compact(
    topic: Topic,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Merge small files of a table now. A running worker does so by itself.

    \b
    Examples:
        ottla table compact orders
    """
    from pathlib import Path as Directory
    from tempfile import TemporaryDirectory

    async def step(upkeep: Upkeep, now_ms: int) -> str:
        with TemporaryDirectory(prefix="ottla-table-") as spool:
            return f"{await upkeep.compact(Directory(spool), now_ms)} groups of files merged"

    _maintain(bootstrap, timeout, _file(config), (warehouse, catalog, namespace), topic, step)


@app.command()
def expire(
    topic: Topic,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Forget old snapshots of a table now. A running worker does so by itself.

    \b
    Examples:
        ottla table expire orders
    """

    async def step(upkeep: Upkeep, now_ms: int) -> str:
        return f"{await upkeep.expire(now_ms)} snapshots forgotten"

    _maintain(bootstrap, timeout, _file(config), (warehouse, catalog, namespace), topic, step)


@app.command()
def sweep(
    topic: Topic,
    config: Config = None,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Delete files that no kept snapshot names now. A running worker does so every hour.

    \b
    Examples:
        ottla table sweep orders
    """

    async def step(upkeep: Upkeep, now_ms: int) -> str:
        return f"{await upkeep.sweep(now_ms)} files deleted"

    _maintain(bootstrap, timeout, _file(config), (warehouse, catalog, namespace), topic, step)


def _maintain(
    bootstrap: str,
    within: float,
    file: TablesFile,
    places: tuple[str | None, str | None, str | None],
    topic: str,
    step: Callable[[Upkeep, int], Awaitable[str]],
) -> None:
    from ottla.clock import SYSTEM

    settings = _settings(file, *places)

    async def command(_: Admin, tables: TableFormat, found: list[TopicSettings]) -> str:
        from ottla.tables.upkeep import Upkeep
        from ottla.tables.warehouse import Warehouse as Files

        upkeep = Upkeep(tables, Files(settings.warehouse), found[0])
        return await step(upkeep, SYSTEM.wall_ms())

    typer.echo(f"{topic}: {_with_tables(bootstrap, within, settings, topic, file, command)}")


def _file(path: Path | None) -> TablesFile:
    from ottla.tables.errors import BadTableSetting
    from ottla.tables.settings import TablesFile, read_tables_file

    try:
        return TablesFile() if path is None else read_tables_file(path)
    except BadTableSetting as error:
        raise typer.BadParameter(str(error), param_hint="--config") from None


def _settings(
    file: TablesFile, warehouse: str | None, catalog: str | None, namespace: str | None
) -> WorkerSettings:
    from ottla.tables.errors import BadTableSetting
    from ottla.tables.settings import worker_settings

    given = {"warehouse": warehouse, "catalog": catalog, "namespace": namespace}
    chosen = {key: value or file.worker.get(f"ottla.table.{key}") for key, value in given.items()}
    place = chosen["warehouse"] or f"file://{Path.cwd() / HERE}"
    where = chosen["catalog"]
    if where is None:
        if not place.startswith("file://"):
            raise typer.BadParameter(
                "a warehouse in an object store needs a catalogue", param_hint="--catalog"
            )
        directory = Path(place.removeprefix("file://"))
        directory.mkdir(parents=True, exist_ok=True)
        where = f"sqlite:///{directory / 'catalog.db'}"
    try:
        registry = file.worker.get("ottla.table.registry.url")
        return worker_settings(place, where, chosen["namespace"] or "ottla", {}, registry)
    except BadTableSetting as error:
        raise typer.BadParameter(str(error), param_hint="--warehouse") from None


def _work(
    bootstrap: str,
    settings: WorkerSettings,
    topics: list[str] | None,
    file: TablesFile,
    *,
    once: bool,
) -> dict[str, dict[int, int]]:
    import asyncio
    import signal

    from ottla.errors import OttlaError
    from ottla.tables.worker import Worker

    async def work() -> dict[str, dict[int, int]]:
        worker = Worker(
            bootstrap, settings, topics=topics, overrides=file.topics, security=security()
        )
        async with worker:
            if once:
                reached = await worker.run_once()
                return {topic: dict(position) for topic, position in reached.items()}
            await worker.run()
        return {}

    async def stoppable() -> dict[str, dict[int, int]]:
        task = asyncio.ensure_future(work())
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return {}

    with sentences():
        try:
            return asyncio.run(stoppable())
        except OttlaError as error:
            fail(error)


def _with_tables(
    bootstrap: str,
    within: float,
    settings: WorkerSettings,
    topic: str | None,
    file: TablesFile,
    command: Callable[[Admin, TableFormat, list[TopicSettings]], Awaitable[T]],
) -> T:
    """Run a command with the catalogue and the settings of the topics it is about."""
    import asyncio

    from ottla.errors import OttlaError
    from ottla.tables.iceberg import IcebergTables
    from ottla.tables.topics import enabled_topics

    async def wrapped(admin: Admin) -> T:
        names = None if topic is None else [topic]
        found = await enabled_topics(admin, names, file.topics)
        if topic is not None and not found:
            fail(f"{topic} has no table; set ottla.table.enable=true on the topic")
        tables = await asyncio.to_thread(IcebergTables, settings)
        try:
            return await command(admin, tables, list(found.values()))
        finally:
            await asyncio.to_thread(tables.close)

    try:
        return with_admin(bootstrap, within, wrapped)
    except OttlaError as error:
        fail(error)


def _offsets(position: dict[int, int]) -> str:
    return " ".join(f"{one}:{at}" for one, at in sorted(position.items()))


def _status(one: TableStatus) -> Value:
    return {
        "topic": one.topic,
        "table": one.table,
        "position": {str(number): at for number, at in sorted(one.position.items())},
        "ends": {str(number): at for number, at in sorted(one.ends.items())},
        "lag": one.lag,
        "seconds": one.seconds,
        "rows": one.rows,
        "files": one.files,
        "small_files": one.small_files,
        "invalid": one.invalid,
        "holes": one.holes,
        "problem": one.problem,
    }


def _finding(one: Finding) -> Value:
    return {
        "partition": one.partition,
        "start": one.start,
        "end": one.end,
        "missing": one.missing,
        "doubled": one.doubled,
        "foreign": one.foreign,
        "different": one.different,
    }


def _shown(state: TableState) -> Value:
    from ottla.tables.iceberg_types import FIELD_ID

    return {
        "table": state.table,
        "topic": state.topic,
        "topic_id": state.topic_id,
        "location": state.location,
        "metadata_location": state.metadata_location,
        "snapshot": state.snapshot,
        "partition": state.partition,
        "first": {str(one): at for one, at in sorted(state.first.items())},
        "position": {str(one): at for one, at in sorted(state.next.items())},
        "columns": [
            {
                "id": int((one.metadata or {})[FIELD_ID]),
                "name": one.name,
                "type": str(one.type),
            }
            for one in state.columns
        ],
    }


def _show(state: TableState) -> None:
    shown = _shown(state)
    assert isinstance(shown, dict)
    columns = shown.pop("columns")
    assert isinstance(columns, list)
    for name, value in shown.items():
        typer.echo(f"{name}: {value}")
    typer.echo()
    print_table(columns, ("id", "name", "type"))
    typer.echo(f"\npolars: pl.scan_iceberg({state.metadata_location!r})")
    typer.echo(f"pyiceberg: StaticTable.from_metadata({state.metadata_location!r}).scan()")
