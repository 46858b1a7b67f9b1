"""Where tables are: the options that every `ottla table` command has, and what they open."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Timeout,
    fail,
    security,
    with_admin,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import TypeVar

    from ottla.client.admin.admin import Admin
    from ottla.tables.converting import Converter
    from ottla.tables.format import TableFormat
    from ottla.tables.settings import TablesFile, TopicSettings, WorkerSettings

    T = TypeVar("T")

P = ParamSpec("P")

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
        metavar="DIR|URL",
        help=f"Where files of tables go, a directory or s3://... [default: {HERE}]",
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

Registry = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Schema registry. [default: ottla.table.registry.url, or the one of the brokers]",
    ),
]


@dataclass(frozen=True)
class Place:
    """The broker, the warehouse and the catalogue that a command was given."""

    bootstrap: str
    timeout: float
    file: TablesFile
    settings: WorkerSettings

    def at_registry(self, url: str | None) -> Place:
        """The same with the registry that an option names, if it does."""
        if url is None:
            return self
        if not url.startswith(("http://", "https://")):
            raise typer.BadParameter(
                f"expected http://HOST:PORT or https://..., got {url!r}", param_hint="--registry"
            )
        return replace(self, settings=replace(self.settings, registry_url=url))

    @asynccontextmanager
    async def converter(self, admin: Admin, settings: TopicSettings) -> AsyncIterator[Converter]:
        """What makes rows of a topic's records; it may ask a registry."""
        import asyncio

        from ottla.tables.converting import Converter
        from ottla.tables.registries import needs_registry, registry_url, schemas_at

        schemas = None
        if needs_registry(settings):
            url = await registry_url(self.settings.registry_url, admin.registry_url)
            schemas = schemas_at(url, security())
        try:
            yield await asyncio.to_thread(Converter, settings, schemas)
        finally:
            if schemas is not None:
                await asyncio.to_thread(schemas.close)

    def with_topic(
        self, topic: str, command: Callable[[Admin, TableFormat, TopicSettings], Awaitable[T]]
    ) -> T:
        """Run a command with the catalogue and the settings of a topic that has a table."""

        async def wrapped(admin: Admin, tables: TableFormat, found: list[TopicSettings]) -> T:
            return await command(admin, tables, found[0])

        return self.with_tables(topic, wrapped)

    def with_tables(
        self,
        topic: str | None,
        command: Callable[[Admin, TableFormat, list[TopicSettings]], Awaitable[T]],
    ) -> T:
        """The same with all topics that have one, or with the one that is named."""
        from ottla.tables.topics import enabled_topics, why_no_table

        async def wrapped(admin: Admin, tables: TableFormat) -> T:
            names = None if topic is None else [topic]
            found = await enabled_topics(admin, names, self.file.topics)
            if topic is not None and not found:
                fail(await why_no_table(admin, tables, topic, self.file.topics))
            return await command(admin, tables, list(found.values()))

        return self.with_catalogue(wrapped)

    def with_catalogue(self, command: Callable[[Admin, TableFormat], Awaitable[T]]) -> T:
        """Run a command with the catalogue."""
        import asyncio

        from ottla.errors import OttlaError
        from ottla.objects.errors import RemoteStorageError
        from ottla.tables.errors import TableError
        from ottla.tables.iceberg import IcebergTables
        from ottla.tables.remedies import remedy

        async def wrapped(admin: Admin) -> T:
            tables = await asyncio.to_thread(IcebergTables, self.settings)
            try:
                return await command(admin, tables)
            except (OSError, RemoteStorageError) as error:
                raise TableError(f"{error}{remedy(error)}") from error
            finally:
                await asyncio.to_thread(tables.close)

        try:
            return with_admin(self.bootstrap, self.timeout, wrapped)
        except OttlaError as error:
            fail(error)


_OPTIONS: tuple[tuple[str, Any, Any], ...] = (
    ("config", Config, None),
    ("warehouse", Warehouse, None),
    ("catalog", Catalog, None),
    ("namespace", Namespace, None),
    ("bootstrap", Bootstrap, DEFAULT_BOOTSTRAP),
    ("timeout", Timeout, DEFAULT_TIMEOUT),
)


def placed(command: Callable[Concatenate[Place, P], None]) -> Callable[..., None]:
    """Give a command the options of a place after its own; it gets them as its first argument."""
    return _with_options(command, _OPTIONS, _place)


def placed_for_good(command: Callable[Concatenate[Place, P], None]) -> Callable[..., None]:
    """The same for a command that runs until it is stopped: it has no --timeout.

    It makes the directory of a local warehouse; others say that there is none.
    """
    return _with_options(command, _OPTIONS[:-1], partial(_place, makes=True))


def _with_options(
    command: Callable[Concatenate[Place, P], None],
    options: tuple[tuple[str, Any, Any], ...],
    place: Callable[..., Place],
) -> Callable[..., None]:
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, kind, default in options
    ]
    parameters = [*(one.replace(kind=keyword) for one in own), *shared]

    def wrapped(**given: Any) -> None:
        of_place = {name: given.pop(name) for name, _, _ in options}
        command(place(**of_place), **given)  # type: ignore[call-arg]  # as its signature says

    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return wrapped


def _place(
    config: Path | None,
    warehouse: str | None,
    catalog: str | None,
    namespace: str | None,
    bootstrap: str,
    timeout: float = DEFAULT_TIMEOUT,
    *,
    makes: bool = False,
) -> Place:
    file = _file(config)
    given = {"warehouse": warehouse, "catalog": catalog, "namespace": namespace}
    return Place(bootstrap, timeout, file, _settings(file, given, makes=makes))


def _file(path: Path | None) -> TablesFile:
    from ottla.tables.errors import BadTableSetting
    from ottla.tables.settings import TablesFile, read_tables_file

    try:
        return TablesFile() if path is None else read_tables_file(path)
    except BadTableSetting as error:
        raise typer.BadParameter(str(error), param_hint="--config") from None


def _settings(file: TablesFile, given: dict[str, str | None], *, makes: bool) -> WorkerSettings:
    from ottla.tables.errors import BadTableSetting
    from ottla.tables.remedies import remedy
    from ottla.tables.settings import worker_settings

    chosen = {key: value or file.worker.get(f"ottla.table.{key}") for key, value in given.items()}
    place = chosen["warehouse"] or HERE
    if "://" not in place:
        place = f"file://{Path(place).absolute()}"
    where = chosen["catalog"]
    if where is None:
        if not place.startswith("file://"):
            raise typer.BadParameter(
                "a warehouse in an object store needs a catalogue", param_hint="--catalog"
            )
        directory = Path(place.removeprefix("file://"))
        if makes:
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                fail(f"cannot make the warehouse: {error}{remedy(error)}")
        elif not directory.is_dir():
            fail(f"no tables in {directory}: it is no directory; --warehouse names another")
        where = f"sqlite:///{directory / 'catalog.db'}"
    try:
        registry = file.worker.get("ottla.table.registry.url")
        tier = file.worker.get("ottla.table.tier.url")
        return worker_settings(place, where, chosen["namespace"] or "ottla", {}, registry, tier)
    except BadTableSetting as error:
        raise typer.BadParameter(str(error), param_hint="--warehouse") from None


def shown_offsets(position: dict[int, int]) -> str:
    """As people read them: `0:1200 1:1187`."""
    return " ".join(f"{one}:{at}" for one, at in sorted(position.items()))
