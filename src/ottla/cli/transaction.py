"""`ottla transaction ...`: list, describe and abort transactions, find those that hang."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    with_admin,
)
from ottla.cli.output import print_each, print_json, print_list, print_table

if TYPE_CHECKING:
    from ottla.cli.output import Cell, Value
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.types import TransactionDescription

app = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)

HANGING_AFTER_MINUTES = 20.0
"""The longest a transaction may take by default (15 minutes), and some time to end it."""


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only those in this state, such as Ongoing or Empty."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Only transactional ids that match."),
    ] = None,
    longer_than: Annotated[
        float | None,
        typer.Option(
            "--longer-than", metavar="SECONDS", min=0, help="Only those open for longer than this."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List the transactional ids and their states.

    \b
    Examples:
        ottla transaction list
        ottla transaction list --state Ongoing --longer-than 60 --json
    """
    found = with_admin(
        bootstrap,
        timeout,
        lambda admin: admin.list_transactions(
            states=state or (), longer_than=longer_than, pattern=pattern
        ),
    )
    rows: list[dict[str, Cell]] = [
        {"transactional_id": one.transactional_id, "producer": one.producer_id, "state": one.state}
        for one in found
    ]
    print_list("transactions", rows, ("transactional_id", "producer", "state"), as_json=as_json)


@app.command()
def describe(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The transactional ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show the producer, the state and the partitions of transactions.

    \b
    Examples:
        ottla transaction describe orders-1
        ottla transaction describe orders-1 orders-2 --json
    """
    found = with_admin(bootstrap, timeout, lambda admin: admin.describe_transactions(ids))
    print_each(found, _as_value, _show, as_json=as_json)


@app.command()
def find_hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic. May be repeated."),
    ] = None,
    longer_than: Annotated[
        float,
        typer.Option(
            "--longer-than",
            metavar="MINUTES",
            min=0,
            help="Longer than transaction.max.timeout.ms, so that no live one is listed.",
        ),
    ] = HANGING_AFTER_MINUTES,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Find transactions that are open in a partition and have no producer or coordinator.

    They hold back readers of committed records; `ottla transaction abort` ends them.

    \b
    Examples:
        ottla transaction find-hanging
        ottla transaction find-hanging --topic orders --longer-than 60 --json
    """
    found = with_admin(
        bootstrap,
        timeout,
        lambda admin: admin.find_hanging_transactions(topic or None, longer_than=longer_than * 60),
    )
    rows: list[dict[str, Cell]] = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "start_offset": one.producer.transaction_start_offset,
            "producer": one.producer.producer_id,
            "epoch": one.producer.producer_epoch,
            "last_write": _time(one.producer.last_timestamp_ms),
        }
        for one in found
    ]
    columns = ("topic", "partition", "start_offset", "producer", "epoch", "last_write")
    print_list("hanging transactions", rows, columns, as_json=as_json)


@app.command()
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Transactional id; its producer is fenced."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="The topic of a hanging transaction.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="The partition it hangs in.")
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, help="Where it began, as find-hanging says."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Abort a transaction by its id, or a hanging one by its offset. Does not ask again.

    \b
    Examples:
        ottla transaction abort orders-1
        ottla transaction abort --topic orders --partition 0 --start-offset 4711
    """

    async def command(admin: Admin) -> str:
        match transactional_id, topic, partition, start_offset:
            case str(name), None, None, None:
                await admin.describe_transactions([name])  # an unknown id is an error
                await admin.fence_producer(name)
                return f"what {name} had open; its producer is fenced"
            case None, str(where), int(number), int(start):
                await admin.abort_transaction(where, number, start)
                return f"the transaction in {where}-{number} that began at offset {start}"
        raise typer.BadParameter(
            "give a transactional id, or all of --topic, --partition and --start-offset"
        )

    aborted = with_admin(bootstrap, timeout, command)
    if as_json:
        print_json({"aborted": True})
    else:
        typer.echo(f"aborted {aborted}")


def _time(milliseconds: int) -> str | None:
    if milliseconds < 0:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _show(one: TransactionDescription) -> None:
    typer.echo(
        f"{one.transactional_id}  {one.state}  producer {one.producer_id} "
        f"epoch {one.producer_epoch}  coordinator {one.coordinator_id}  "
        f"timeout {one.timeout_ms / 1000:g} s"
    )
    if one.start_time_ms is not None:
        typer.echo(f"began {_time(one.start_time_ms)}")
    if one.partitions:
        rows: list[dict[str, Cell]] = [
            {"topic": key.topic, "partition": key.partition} for key in one.partitions
        ]
        print_table(rows, ("topic", "partition"))


def _as_value(one: TransactionDescription) -> Value:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "coordinator": one.coordinator_id,
        "producer": one.producer_id,
        "epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "start_time_ms": one.start_time_ms,
        "partitions": [{"topic": key.topic, "partition": key.partition} for key in one.partitions],
    }
