"""`ottla table erase`: rows leave the table and all that the store keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import Json, complain, security
from ottla.cli.output import print_json
from ottla.cli.table_place import Place, Topic, placed

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.tables.erasing import Erased, Ranges
    from ottla.tables.format import TableFormat
    from ottla.tables.settings import TopicSettings

NOT_FINISHED = 3


@placed
def erase(
    place: Place,
    topic: Topic,
    where: Annotated[
        str,
        typer.Option(
            metavar="PREDICATE", help="user_id = 'x' and shop in ('a', 'b') and note is null"
        ),
    ],
    as_json: Json = False,
) -> None:
    """Erase rows of a table, its old snapshots and the files that had the rows, at once.

    The log keeps the records until its retention removes them; while there are any, the status is
    3. Ask again with the same predicate to see how many are left. Dead letters have the columns
    _key, _partition, _offset and others, but not those of values: the status is 3 as well if there
    are any that could not be searched.

    \b
    Examples:
        ottla table erase orders --where "user_id = 'x'"
        ottla table erase orders --where "_key in ('17', '18')"
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from ottla.clock import SYSTEM
    from ottla.tables.erasing import Erasing
    from ottla.tables.errors import BadStatement
    from ottla.tables.predicates import parse_predicate
    from ottla.tables.warehouse import Warehouse

    try:
        predicate = parse_predicate(where)
    except BadStatement as error:
        raise typer.BadParameter(str(error), param_hint="--where") from None

    async def command(
        admin: Admin, tables: TableFormat, found: TopicSettings
    ) -> tuple[Erased, Ranges, int]:
        from ottla.tables.pointer import publish_current
        from ottla.tables.topics import check_own, look

        await check_own(admin, tables, found)
        with TemporaryDirectory(prefix="ottla-table-") as spool:
            work = Erasing(tables, Warehouse(place.settings.warehouse), found, Path(spool))
            done = await work.run(predicate, where, SYSTEM.wall_ms())
        if done.deleted:
            await publish_current(place.bootstrap, tables, found, security=security())
        log = await look(admin, found, is_new=False)
        left: Ranges = {}
        for one in done.erasures:
            for number, ranges in one.still_in(log.starts).items():
                left.setdefault(number, []).extend(ranges)
        [kept] = await admin.describe_configs("topic", topic, ["retention.ms"])
        return done, left, int(kept.value or -1)

    done, left, retention_ms = place.with_topic(topic, command)
    newest_ms = max((one.newest_us for one in done.erasures), default=0) // 1000
    if as_json:
        print_json(
            {
                "rows": done.rows,
                "files": done.files,
                "deleted": done.deleted,
                "in_log": {
                    str(number): [list(one) for one in ranges] for number, ranges in left.items()
                },
                "letters_not_searched": done.unsearched,
            }
        )
    else:
        typer.echo(
            f"{topic}: {done.rows} rows erased from {done.files} files, {done.deleted} files "
            "deleted from the store"
        )
    if left:
        complain(_sentence(topic, left, newest_ms, retention_ms))
    if done.unsearched:
        complain(
            f"{topic}: {done.unsearched} dead letters were not searched, since they have no "
            "columns of values: look at them, and erase them by _key, or by _partition and _offset"
        )
    if left or done.unsearched:
        raise typer.Exit(NOT_FINISHED)


def _sentence(topic: str, left: Ranges, newest_ms: int, retention_ms: int) -> str:
    from datetime import UTC, datetime

    places = ", ".join(
        f"{topic}-{number} {low} to {end - 1}"
        for number, ranges in sorted(left.items())
        for low, end in ranges[:10]
    )
    if retention_ms < 0:
        return f"still in the log: {places}; it has no retention.ms, so delete records or set one"
    gone = datetime.fromtimestamp((newest_ms + retention_ms) / 1000, UTC)
    return (
        f"still in the log: {places}; retention.ms removes them after {gone:%Y-%m-%d %H:%M} UTC, "
        "with their segments"
    )
