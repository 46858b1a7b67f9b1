"""`ottla offsets ...`: list, get, set and delete the positions in an offset store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ottla.cli.common import Json, fail
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cli.output import Cell
    from ottla.offsets import OffsetKey, SyncOffsetStore

T = TypeVar("T")

app = typer.Typer(
    help="List, get, set and delete positions in an offset store.", no_args_is_help=True
)

Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="A directory of lock files, sqlite:///FILE or postgresql://..."
    ),
]
Consumer = Annotated[str, typer.Argument(help="The consumer: the name of the group.")]
Stream = Annotated[str, typer.Argument(help="The stream.")]
Shard = Annotated[int, typer.Option("--shard", min=0, metavar="N", help="The shard.")]


@app.command("list")
def list_(
    store: Store,
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", metavar="NAME", help="Only positions of this consumer."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the positions.

    \b
    Examples:
        ottla offsets list ./offsets
        ottla offsets list sqlite:///app.db --consumer billing --json
    """
    found = _with_store(store, lambda opened: opened.list_all(consumer))
    rows = [_row(key, position) for key, position in sorted(found.items())]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ("consumer", "stream", "shard", "position"))


@app.command()
def get(
    store: Store, consumer: Consumer, stream: Stream, shard: Shard = 0, as_json: Json = False
) -> None:
    """Print one position; status 1 if there is none.

    \b
    Examples:
        ottla offsets get ./offsets billing orders
        ottla offsets get postgresql:///app billing orders --shard 3 --json
    """
    key = _key(consumer, stream, shard)
    position = _with_store(store, lambda opened: opened.load(key))
    if position is None:
        fail(f"there is no position of {key}; `ottla offsets list` shows what there is")
    if as_json:
        print_json(_row(key, position))
    else:
        typer.echo(position)


@app.command("set")
def set_(
    store: Store,
    consumer: Consumer,
    stream: Stream,
    position: Annotated[int, typer.Argument(help="The next sequence to read.")],
    shard: Shard = 0,
    rewind: Annotated[bool, typer.Option("--rewind", help="Allow a lower position.")] = False,
    expected: Annotated[
        int | None,
        typer.Option("--expected", metavar="N", help="Set it only if this position is stored."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set a position. Going back needs --rewind. Stop the consumer first.

    \b
    Examples:
        ottla offsets set ./offsets billing orders 1200
        ottla offsets set sqlite:///app.db billing orders 0 --rewind
    """
    from ottla.offsets import UNSET, OffsetRegression

    key = _key(consumer, stream, shard)

    def command(opened: SyncOffsetStore) -> dict[str, Cell]:
        try:
            info = opened.save(
                key, position, expected=UNSET if expected is None else expected, rewind=rewind
            )
        except OffsetRegression as error:
            fail(f"{key} is at {error.stored}, and to go back to {position} takes --rewind")
        return {**_row(key, info.position), "previous": info.previous, "changed": info.changed}

    result = _with_store(store, command, may_create=True)
    if as_json:
        print_json(result)
    else:
        before = "nowhere" if result["previous"] is None else result["previous"]
        typer.echo(f"set {key} to {position}, it was at {before}")


@app.command()
def delete(
    store: Store, consumer: Consumer, stream: Stream, shard: Shard = 0, as_json: Json = False
) -> None:
    """Delete a position, also one that is corrupt; status 1 if there is none.

    \b
    Examples:
        ottla offsets delete ./offsets billing orders
    """
    key = _key(consumer, stream, shard)
    deleted = _with_store(store, lambda opened: opened.delete(key))
    if as_json:
        print_json({"consumer": consumer, "stream": stream, "shard": shard, "deleted": deleted})
    if not deleted:
        fail(f"there is no position of {key}; `ottla offsets list` shows what there is")
    if not as_json:
        typer.echo(f"deleted the position of {key}")


def _with_store(
    url: str, command: Callable[[SyncOffsetStore], T], *, may_create: bool = False
) -> T:
    from pathlib import Path

    from ottla.offsets import OffsetError, SyncLockFileOffsetStore, SyncSqliteOffsetStore
    from ottla.offsets.urls import store_from_url

    if "://" not in url and Path(url).is_file():
        fail(f"{url} is a file: write sqlite:///{url} if it is a database of SQLite")
    try:
        store = store_from_url(url).sync
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="STORE") from None
    if isinstance(store, SyncSqliteOffsetStore) and not may_create:
        file = Path(store.database or "")
        if not file.exists():
            fail(f"there is no file {file}, and only `ottla offsets set` makes one")
    if (
        isinstance(store, SyncLockFileOffsetStore)
        and not may_create
        and not store.base_dir.exists()
    ):
        fail(f"{store.base_dir} does not exist; `ottla offsets set` creates it")
    try:
        with store:
            return command(store)
    except (OffsetError, ValueError) as error:
        fail(error)
    except ImportError:
        fail("PostgreSQL needs a driver: pip install 'ottla[postgres]'")


def _key(consumer: str, stream: str, shard: int) -> OffsetKey:
    from ottla.offsets import OffsetKey

    try:
        return OffsetKey(consumer, stream, shard)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _row(key: OffsetKey, position: int) -> dict[str, Cell]:
    return {
        "consumer": key.consumer,
        "stream": key.stream,
        "shard": key.shard,
        "position": position,
    }
