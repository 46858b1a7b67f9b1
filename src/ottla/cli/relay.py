"""`ottla relay` copies between stream URLs; `ottla clock` sends test messages."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ottla.cli.common import complain, fail, given_security
from ottla.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.offsets import OffsetStore
    from ottla.streams.relay import Tally

RELAY_EXAMPLES = """\b
Examples:
    ottla relay --input file://./x.ss/orders --output kafka://127.0.0.1:9092/orders --until-end
    tail -F app.log | ottla relay --plain --input stdio:///log --output redis://localhost/log
    ottla relay --input kafka://127.0.0.1:9092/a --output file://./a.ss/a --offsets ./offsets
"""
CLOCK_EXAMPLES = """\b
Examples:
    ottla clock --output stdio:///clock --interval 100ms
    ottla clock --output file://./clock.ss/clock --count 10
"""

CONNECT_TIMEOUT = 30.0
"""Seconds; joining a Kafka group may have to wait for the session of a crashed relay to end."""
Timeout: TypeAlias = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.1, metavar="SECONDS", help="Give up connecting after this time."
    ),
]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def relay(
    input_url: Annotated[str, typer.Option("--input", metavar="URL", help="Stream to read.")],
    output_url: Annotated[str, typer.Option("--output", metavar="URL", help="Stream to write.")],
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="start|end", help="Where to start if no position is stored."
        ),
    ] = "start",
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the current end.")
    ] = False,
    offsets: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="Store positions here and resume from them."),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name under which positions are stored.")
    ] = "ottla-relay",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse to start if the output would lose something."),
    ] = False,
    new_timestamps: Annotated[
        bool,
        typer.Option("--new-timestamps", help="Give messages the time of their arrival."),
    ] = False,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Take and write lines of stdio:// as they are. Without it [text] at the beginning "
            "of a line is a header that names a stream, and other streams are left out.",
        ),
    ] = False,
    timeout: Timeout = CONNECT_TIMEOUT,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show the rate.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the total as JSON.")] = False,
) -> None:
    """Copy messages from one stream to another, in order. Ctrl-C ends after the current batch."""
    if start not in ("start", "end"):
        raise typer.BadParameter("choose start or end", param_hint="--from")
    from ottla.streams.relay import Tally, relay_streams

    tally = Tally()
    show = None if quiet or not sys.stderr.isatty() else _show
    _run(
        relay_streams(
            input_url,
            output_url,
            from_start=start == "start",
            until_end=until_end,
            offsets=_store(offsets),
            name=name,
            strict=strict,
            new_timestamps=new_timestamps,
            plain=plain,
            timeout=timeout,
            security=given_security(),
            tally=tally,
            show=show,
            warn=complain,
        )
    )
    if show is not None:
        typer.echo(err=True)
    if as_json:
        print_json({"messages": tally.total, "milliseconds": round(tally.seconds * 1000)})
    elif not quiet:
        typer.echo(f"relayed {tally.total} messages", err=True)


def clock(
    output_url: Annotated[str, typer.Option("--output", metavar="URL")] = "stdio:///clock",
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Time between messages: 100ms, 1s, 5m.")
    ] = "1s",
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after N messages.")
    ] = None,
    timeout: Timeout = CONNECT_TIMEOUT,
) -> None:
    """Send `tick-0`, `tick-1`, ... to a stream."""
    found = re.fullmatch(r"(\d+)(ms|s|m)", interval)
    if found is None:
        raise typer.BadParameter(
            "expected a number with ms, s or m, such as 100ms", param_hint="--interval"
        )
    from ottla.streams.relay import tick

    _run(tick(output_url, int(found[1]) * _UNITS[found[2]], count, timeout, given_security()))


def _store(url: str | None) -> OffsetStore | None:
    if url is None:
        return None
    from ottla.offsets import OffsetError
    from ottla.offsets.urls import store_from_url

    try:
        return store_from_url(url)
    except (ValueError, OffsetError) as error:
        raise typer.BadParameter(str(error), param_hint="--offsets") from None


def _show(tally: Tally) -> None:
    typer.echo(f"\r{tally.total} messages, {tally.rate:,.0f}/s   ", err=True, nl=False)


def _run(work: Coroutine[object, object, None]) -> None:
    import asyncio

    from ottla.offsets import OffsetError
    from ottla.streams.errors import StreamError
    from ottla.streams.relay import Lossy

    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        return
    except Lossy as error:
        complain(error)
        raise typer.Exit(2) from None
    except StreamError as error:
        fail(error.plain)
    except (OffsetError, OSError, ValueError) as error:
        fail(error)
