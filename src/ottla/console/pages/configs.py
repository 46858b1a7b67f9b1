"""Settings of topics and queues: one key at a time, checked by the broker, applied as previewed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from starlette.responses import RedirectResponse

from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.offsets import OffsetsBesideFetches
from ottla.client.errors import AuthorizationFailed, ClientError, KafkaError
from ottla.client.reader.types import Timestamp
from ottla.console import figures
from ottla.console.app import console_of
from ottla.console.guard import changes
from ottla.console.missing import Missing, missing
from ottla.console.pages.changing import admin_of, done, field, refusal
from ottla.console.pages.shared import answer
from ottla.console.problem import Refused
from ottla.console.signing import opened, sealed
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.views.frame import frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.client.admin.types import ConfigEntry
    from ottla.client.cluster.view import TopicPartition
    from ottla.console.links import Links
    from ottla.console.watching import Watched

Of: TypeAlias = Literal["topic", "group"]
MOST_PARTITIONS: Final = 500
"""Partitions that are asked for what a retention would delete."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What `confirm.html` shows of a change."""

    title: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    notes: tuple[str, ...]


def _of(request: Request) -> tuple[Of, str]:
    named = request.path_params
    return (
        ("group", unslug(named["queue"])) if "queue" in named else ("topic", unslug(named["topic"]))
    )


def _home(link: Links, of: Of, name: str) -> str:
    return link.queue(name, tab="settings") if of == "group" else link.topic(name, tab="configs")


async def configs(watched: Watched, of: Of, name: str) -> list[ConfigEntry] | Missing:
    """All settings with their documentation, those that were changed first."""
    calls = ConfigCalls(watched.client)
    try:
        found = await calls.describe_configs(of, name, documentation=True)
    except ClientError as error:
        return missing(error, f"DescribeConfigs on {of} {name!r}")
    return sorted(found, key=lambda one: (one.is_default, one.name))


@changes
async def preview(request: Request, form: FormData) -> Response:
    """One key before and after, and what comes of it; the broker has checked the value."""
    console = console_of(request)
    watched = console.cluster(request)
    of, name = _of(request)
    key = field(form, "key").strip()
    value = None if form.get("default") else field(form, "value").strip()
    if not key:
        raise Refused(400, "Name the key to change.")
    async with admin_of(watched) as admin:
        try:
            before = await admin.describe_configs(of, name, [key])
            await admin.alter_configs(of, name, {key: value}, validate_only=True)
        except ClientError as error:
            if isinstance(error, KafkaError) and not isinstance(error, AuthorizationFailed):
                raise Refused(400, " ".join(str(error).split())) from error
            raise refusal(error) from error
    shown = "back to its default" if value is None else f"{key}={value}"
    seen = Seen(
        f"Change {key}",
        tuple(_line(one) for one in before),
        (shown,),
        await _effect(watched, name, key, value) if of == "topic" else (),
    )
    link = console.links(watched.name)
    return answer(
        request,
        watched,
        "confirm.html",
        seen.title,
        section="topics" if of == "topic" else "queues",
        seen=seen,
        up=_home(link, of, name),
        up_words=name,
        apply=link.configs(of, name, "apply"),
        signed=sealed(console.visitors.secret, of, name, [key, value]),
        line=console.commands(watched.name).config(of, name, key, value),
        frame=frame(watched.look(), watched.attention()),
    )


def _line(one: ConfigEntry) -> str:
    value = "(not shown)" if one.sensitive else one.value
    return f"{one.name}={value}{' (default)' if one.is_default else ''}"


@changes
async def apply(request: Request, form: FormData) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    of, name = _of(request)
    key, value = opened(console.visitors.secret, of, name, field(form, "change"))
    async with admin_of(watched) as admin:
        work = admin.alter_configs(of, name, {key: value})
        await done(request, watched, "AlterConfigs", f"{of} {name} {key}", work)
    watched.snapshot.forget(Kind.SETTINGS)
    return RedirectResponse(_home(console.links(watched.name), of, name), 303)


async def _effect(watched: Watched, topic: str, key: str, value: str | None) -> tuple[str, ...]:
    """Sentences about a retention; about other keys the documentation says all."""
    if value is None or not value.removeprefix("-").isdecimal() or int(value) < 0:
        return ()
    sizes = _sizes(watched, topic)
    if sizes is None or len(sizes) > MOST_PARTITIONS:
        return ()
    if key == "retention.bytes":
        gone = float(sum(max(0, size - int(value)) for size in sizes.values()))
    elif key == "retention.ms":
        try:
            gone = await _older(watched, sizes, watched.look().now.wall_ms - int(value))
        except ClientError:
            return ()
    else:
        return ()
    return (f"About {figures.size(gone)} of {figures.size(sum(sizes.values()))} become deletable.",)


def _sizes(watched: Watched, topic: str) -> Mapping[TopicPartition, int] | None:
    """Bytes of each partition, in the directory that has most of it."""
    directories = watched.snapshot.data.log_dirs.value
    if isinstance(directories, Missing):
        return None
    found: dict[TopicPartition, int] = {}
    for one in directories:
        for key, size in one.sizes.items():
            if key.topic == topic:
                found[key] = max(size, found.get(key, 0))
    return found


async def _older(watched: Watched, sizes: Mapping[TopicPartition, int], at_ms: int) -> float:
    """Bytes of records before a time, if all records of a partition are as large."""
    calls = OffsetsBesideFetches(watched.client)
    keys: Iterable[tuple[str, int]] = list(sizes)
    starts, ends, cuts = await asyncio.gather(
        calls.list_offsets(keys, "earliest"),
        calls.list_offsets(keys, "latest"),
        calls.list_offsets(keys, Timestamp(max(0, at_ms))),
    )
    gone = 0.0
    for key, size in sizes.items():
        start, end = starts[key].offset, ends[key].offset
        cut = end if cuts[key].offset < 0 else cuts[key].offset
        if end > start:
            gone += size * (cut - start) / (end - start)
    return gone
