"""Changes by programs: JSON in and out. Nothing is changed unless `dry_run` is false."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.datastructures import FormData
from starlette.responses import JSONResponse
from starlette.routing import Route

from ottla.client.admin.transactions import TransactionCalls
from ottla.client.errors import AuthorizationFailed, ClientError, KafkaError
from ottla.console import actions
from ottla.console import redrive as redriving
from ottla.console.accounts import Role
from ottla.console.app import console_of
from ottla.console.guard import api_gate
from ottla.console.pages import letters as letters_page
from ottla.console.pages.changing import admin_of, done, refusal
from ottla.console.pages.messages import check_topic
from ottla.console.pages.resets import check_stopped
from ottla.console.problem import Refused
from ottla.console.query import BadPlace
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.client.admin.resets import OffsetMove
    from ottla.console.guard import Handler
    from ottla.console.pages.resets import Sort

Body = dict[str, Any]


def _text(body: Body, name: str, default: str | None = None) -> str:
    found = body.get(name, default)
    if not isinstance(found, str):
        raise Refused(400, f"{name} is a text.")
    return found


def _texts(body: Body, name: str) -> list[str]:
    found = body.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Refused(400, f"{name} is a list of texts.")
    return found


def _flag(body: Body, name: str, *, default: bool) -> bool:
    found = body.get(name, default)
    if not isinstance(found, bool):
        raise Refused(400, f"{name} is true or false.")
    return found


def _is_dry(body: Body) -> bool:
    return _flag(body, "dry_run", default=True)


def _known(body: Body, *names: str) -> None:
    """A key that is misspelt must not be passed over in a change."""
    unknown = sorted(set(body) - {"dry_run", *names})
    if unknown:
        raise Refused(400, f"Unknown key {unknown[0]!r:.60}; known are {', '.join(names)}.")


def _answer(body: Body, **found: object) -> Response:
    return JSONResponse({"dry_run": _is_dry(body), **found})


@api_gate(Role.OPERATOR)
async def produce(request: Request, body: Body) -> Response:
    """One record."""
    _known(body, "key", "key_as", "value", "value_as", "headers", "partition")
    watched = console_of(request).cluster(request)
    topic = unslug(request.path_params["topic"])
    await check_topic(watched, topic)
    key = actions.contents(_text(body, "key", ""), _text(body, "key_as", "null"))
    value = actions.contents(_text(body, "value", ""), _text(body, "value_as", "text"))
    headers = body.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(one, str) for one in headers.values()):
        raise Refused(400, 'headers are an object of texts, such as {"source": "web"}.')
    if len(headers) > actions.MAX_HEADERS:
        raise Refused(400, f"At most {actions.MAX_HEADERS} headers.")
    pairs = [(name, text.encode("utf-8", "surrogatepass")) for name, text in headers.items()]
    partition = body.get("partition")
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
        raise Refused(400, "partition is a number, or left out.")
    if _is_dry(body):
        return _answer(body, size=len(key or b"") + len(value or b""))
    sent = []

    async def work() -> None:
        cluster = watched.cluster.settings
        sent.append(await actions.produce(cluster, topic, key, value, pairs, partition))

    await done(request, watched, "Write", f"topic {topic}", work())
    return _answer(body, partition=sent[0].partition, offset=sent[0].offset)


@api_gate(Role.ADMIN)
async def configure(request: Request, body: Body) -> Response:
    """One setting of a topic; null takes it back to its default."""
    _known(body, "key", "value")
    watched = console_of(request).cluster(request)
    topic, key = unslug(request.path_params["topic"]), _text(body, "key")
    value = None if "value" in body and body["value"] is None else _text(body, "value")
    async with admin_of(watched) as admin:
        try:
            known = await admin.describe_configs("topic", topic, [key])
            await admin.alter_configs("topic", topic, {key: value}, validate_only=True)
        except ClientError as error:
            if isinstance(error, KafkaError) and not isinstance(error, AuthorizationFailed):
                raise Refused(400, " ".join(str(error).split())) from error
            raise refusal(error) from error
        if not _is_dry(body):
            work = admin.alter_configs("topic", topic, {key: value})
            await done(request, watched, "AlterConfigs", f"topic {topic} {key}", work)
    before = known[0].value if known else None
    return _answer(body, key=key, before=before, after=value)


@api_gate(Role.OPERATOR)
async def reset_group(request: Request, body: Body) -> Response:
    return await _reset(request, body, "group", unslug(request.path_params["group"]))


@api_gate(Role.OPERATOR)
async def reset_queue(request: Request, body: Body) -> Response:
    return await _reset(request, body, "queue", unslug(request.path_params["queue"]))


async def _reset(request: Request, body: Body, sort: Sort, name: str) -> Response:
    """To `earliest`, `latest`, `offset`, `shift` or `time`, which `at` says."""
    _known(body, "to", "at", "topics")
    console = console_of(request)
    watched = console.cluster(request)
    at = body.get("at", "")
    try:
        target = actions.reset_target(_text(body, "to"), str(at), console.now())
        async with admin_of(watched) as admin:
            await check_stopped(admin, sort, name)
            is_queue = sort == "queue"
            plan = admin.plan_share_offset_reset if is_queue else admin.plan_offset_reset
            moves = await plan(name, target, _texts(body, "topics"))
            if not _is_dry(body):
                alter = admin.alter_share_group_offsets if is_queue else admin.alter_group_offsets
                offsets = {(one.topic, one.partition): one.after for one in moves}
                await done(request, watched, "Read", f"group {name}", alter(name, offsets))
    except ClientError as error:
        raise refusal(error) from error
    except BadPlace as error:
        raise Refused(400, str(error)) from error
    watched.snapshot.forget_group(name)
    seen = actions.preview(moves)
    shown = [_move(one) for one in moves]
    return _answer(body, moves=shown, again=seen.again, skipped=seen.skipped)


def _move(one: OffsetMove) -> Body:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "before": one.before,
        "after": one.after,
    }


@api_gate(Role.OPERATOR)
async def redrive(request: Request, body: Body) -> Response:
    """Letters by `partition@offset`, or all; with `dry_run` what would be sent where."""
    _known(body, "letters", "how", "to", "rate", "force")
    console = console_of(request)
    watched = console.cluster(request)
    queue = unslug(request.path_params["queue"])
    chosen = body.get("letters", [])
    form = {
        "which": "all" if chosen == "all" else "chosen",
        "how": _text(body, "how", "key"),
        "to": _text(body, "to", ""),
        "rate": str(body.get("rate", redriving.RATE)),
        "force": "1" if _flag(body, "force", default=False) else "",
    }
    if chosen != "all":
        form |= {f"l:{one}": "1" for one in _texts(body, "letters")}
    plan = await letters_page.plan_of(request, FormData(form), watched, queue)
    box = watched.box(plan.topic)
    topics = watched.look().data.topics
    seen = redriving.preview(plan, box.letters, box.entries.by_name, topics)
    if not _is_dry(body):
        letters_page.start(request, watched, plan, queue)
    return _answer(
        body,
        targets=seen.by_target,
        passed=seen.passed,
        refused=[{"letter": one.letter, "reason": one.reason} for one in seen.refused],
        progress=console.links(watched.name).api("queues", queue, "letters"),
    )


@api_gate(Role.OPERATOR)
async def fence(request: Request, body: Body) -> Response:
    """Abort what a producer has open, and fence it."""
    _known(body)
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["id"])
    calls = TransactionCalls(watched.client)
    try:
        [found] = await calls.describe_transactions([name])
    except ClientError as error:
        raise refusal(error) from error
    if not _is_dry(body):
        work = calls.fence_producer(name)
        await done(request, watched, "Write", f"transactional id {name}", work)
        watched.snapshot.forget(Kind.TRANSACTIONS)
    return _answer(body, state=found.state)


class Changed(NamedTuple):
    """A route that changes something, and the keys of its object."""

    path: str
    handler: Handler
    summary: str
    keys: tuple[tuple[str, str], ...]


_AT: Final = "/api/v1/c/{cluster}"
_RESET: Final = (
    ("to", "earliest, latest, offset, shift or time."),
    ("at", "The offset, the number of records, or the time."),
    ("topics", "A list of topics; without it those that have offsets."),
)
CHANGED: Final = (
    Changed(
        f"{_AT}/topics/{{topic}}/messages",
        produce,
        "Produce a record",
        (
            ("key", "The key."),
            ("key_as", "null (if left out), text, json or base64."),
            ("value", "The value."),
            ("value_as", "text (if left out), json, base64 or null."),
            ("headers", "An object of texts."),
            ("partition", "A number; without it by the key."),
        ),
    ),
    Changed(
        f"{_AT}/topics/{{topic}}/configs",
        configure,
        "Change a setting",
        (("key", "The setting."), ("value", "A text; null: back to the default.")),
    ),
    Changed(f"{_AT}/groups/{{group}}/reset", reset_group, "Reset the offsets of a group", _RESET),
    Changed(f"{_AT}/queues/{{queue}}/reset", reset_queue, "Reset the start of a queue", _RESET),
    Changed(
        f"{_AT}/queues/{{queue}}/letters/redrive",
        redrive,
        "Send dead letters again",
        (
            ("letters", "A list of letters such as 0@17, or all."),
            ("how", "key (if left out), partition or dismiss."),
            ("to", "Another topic than the one that each came from."),
            ("rate", "Letters a second."),
            ("force", "true: also those that were dealt with before."),
        ),
    ),
    Changed(f"{_AT}/transactions/{{id}}/fence", fence, "Abort and fence a producer", ()),
)


def routes() -> list[Route]:
    return [Route(one.path, one.handler, methods=["POST"]) for one in CHANGED]
