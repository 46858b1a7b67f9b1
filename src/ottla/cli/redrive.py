"""`ottla share-group redrive`: send dead letters again, each exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import DEFAULT_BOOTSTRAP, Bootstrap, Json, security, sentences
from ottla.cli.output import print_json, print_table
from ottla.cli.resets import Execute  # noqa: TC001  # typer reads it

if TYPE_CHECKING:
    from ottla.console.redrive import Plan, Preview, Progress

MOST_REFUSALS = 20
"""Refused letters that are printed; --json has all."""


def redrive(
    name: Annotated[str, typer.Argument(help="The share group.")],
    letter: Annotated[
        list[str] | None,
        typer.Option(
            "--letter",
            metavar="PARTITION@OFFSET",
            help="Only this letter. May be repeated. [default: the newest 5,000 of the group]",
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option("--to", metavar="TOPIC", help="Send to this topic, not where they came from."),
    ] = "",
    same_partition: Annotated[
        bool,
        typer.Option("--same-partition", help="Keep the partition, instead of going by the key."),
    ] = False,
    dismiss: Annotated[
        bool, typer.Option("--dismiss", help="Send nothing; note that they are dealt with.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also those dealt with before, and records sent again 5 times."
        ),
    ] = False,
    rate: Annotated[
        int, typer.Option("--rate", metavar="N", min=1, max=100_000, help="Letters a second.")
    ] = 500,
    execute: Execute = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Send the dead letters of a share group again. Shows the plan; --execute carries it out.

    Each letter is sent exactly once: its record and a note in the topic ottla.redrive are one
    transaction. Letters that were dealt with before are passed over, so a redrive that was
    interrupted can be repeated.

    \b
    Examples:
        ottla share-group redrive warehouse
        ottla share-group redrive warehouse --execute
        ottla share-group redrive warehouse --letter 0@17 --to orders-retry --execute
        ottla share-group redrive warehouse --dismiss --execute
    """
    import asyncio

    from ottla.client.cluster.cluster import Client
    from ottla.client.errors import ClientError
    from ottla.clock import SYSTEM
    from ottla.console import redrive as redriving
    from ottla.console.browse import Browser
    from ottla.console.clusters import ClusterSettings
    from ottla.console.decode.mask import Rules
    from ottla.console.decode.reading import Decoder
    from ottla.console.letters import Box, letters_topic
    from ottla.console.missing import Missing

    cluster = ClusterSettings("local", bootstrap, security())

    async def run() -> tuple[Plan, Preview, Progress | None]:
        async with Client(bootstrap, client_id="ottla", security=cluster.security) as client:
            await client.connection_to("any")
            topic = await letters_topic(client, name)
            if isinstance(topic, Missing):
                raise ClientError(topic.reason)
            browser, box = Browser(client, SYSTEM), Box(topic)
            if not await box.refresh(browser, Decoder(Rules(), 200)):
                raise ClientError(f"topic {topic!r} does not exist: no letter was written yet")
            topics = (await client.refresh(None)).topics
        places = (
            [redriving.parse_place(one) for one in letter]
            if letter
            else [one.place for one in box.of_group(name)]
        )
        plan = redriving.Plan(
            name,
            topic,
            tuple(places),
            to=to,
            same_partition=same_partition,
            dismiss=dismiss,
            force=force,
            rate=rate,
        )
        seen = redriving.preview(plan, box.letters, box.entries.by_name, topics)
        if not execute or not places:
            return plan, seen, None
        progress = redriving.Progress(len(plan.places))
        await redriving.run(cluster, plan, progress, SYSTEM)
        return plan, seen, progress

    with sentences():
        try:
            plan, seen, progress = asyncio.run(run())
        except redriving.BadPlan as error:
            raise typer.BadParameter(str(error)) from error
    _print(plan, seen, progress, as_json=as_json)


def _print(plan: Plan, seen: Preview, progress: Progress | None, *, as_json: bool) -> None:
    refused = seen.refused if progress is None else progress.refused
    if as_json:
        print_json(
            {
                "topic": plan.topic,
                "letters": len(plan.places),
                "to": dict(seen.by_target),
                "passed": seen.passed if progress is None else progress.passed,
                "sent": None if progress is None else progress.done,
                "refused": [{"letter": one.letter, "reason": one.reason} for one in refused],
            }
        )
        return
    if progress is None:
        for target, count in seen.by_target.items():
            typer.echo(f"{count} letters to {target}" if target else f"{count} letters to dismiss")
        if seen.passed:
            typer.echo(f"{seen.passed} were dealt with before")
        if not plan.places:
            typer.echo(f"no letters of this group in {plan.topic}")
    else:
        typer.echo(f"{progress.done} letters done, {progress.passed} were dealt with before")
    if refused:
        print_table(
            [{"letter": one.letter, "refused": one.reason} for one in refused[:MOST_REFUSALS]],
            ("letter", "refused"),
        )
        if len(refused) > MOST_REFUSALS:
            typer.echo(f"and {len(refused) - MOST_REFUSALS} more")
    if progress is None and seen.by_target:
        typer.echo("Nothing was changed; --execute carries it out.")
