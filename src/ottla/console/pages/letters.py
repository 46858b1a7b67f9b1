"""Dead letters of a queue, and sending them again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from ottla.client.errors import ClientError
from ottla.console import redrive as redriving
from ottla.console.app import console_of
from ottla.console.decode.mask import rules_of
from ottla.console.decode.reading import Decoder
from ottla.console.guard import operates
from ottla.console.letters import letters_topic
from ottla.console.missing import Missing
from ottla.console.pages.details import watch_queue
from ottla.console.pages.shared import answer, table_query
from ottla.console.problem import Refused
from ottla.console.redrive import BadPlan, Plan
from ottla.console.signing import opened, sealed
from ottla.console.slugs import unslug
from ottla.console.text import name as shown
from ottla.console.views import letters
from ottla.console.views.frame import frame

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.letters import Box
    from ottla.console.views.letters import LettersPage
    from ottla.console.watching import Watched


async def letters_view(request: Request) -> LettersPage:
    """The page's values."""
    console = console_of(request)
    watched = console.cluster(request)
    group = unslug(request.path_params["queue"])
    await watch_queue(watched, group)
    topic = await letters_topic(watched.client, group)
    box, problem = None, ""
    job = None if isinstance(topic, Missing) else watched.redrives.get(topic)
    # Before the letters are read: a redrive that is done on the page has its notes there, too.
    progress = None if job is None else replace(job.progress)
    if not isinstance(topic, Missing):
        box, problem = await _box(request, watched, topic)
    return letters.page(
        watched.look(),
        watched.attention(),
        group,
        topic,
        [] if box is None else box.of_group(group),
        {} if box is None else box.entries.by_name,
        0 if box is None else box.total,
        progress,
        table_query(request),
        problem=problem,
        reason=request.query_params.get("reason", "")[:200],
    )


async def _box(request: Request, watched: Watched, topic: str) -> tuple[Box | None, str]:
    console = console_of(request)
    rules = rules_of(console.cluster_settings(watched.name), topic)
    if rules.hidden:
        return None, "the contents of the topic are not shown: the settings hide them"
    schemas = await watched.registry.schemas()
    decoder = Decoder(rules, console.settings.value_preview_bytes, schemas=schemas)
    box = watched.box(topic)
    try:
        if await box.refresh(watched.browser, decoder):
            return box, ""
    except ClientError as error:
        return None, " ".join(str(error).split())
    return None, f"topic {topic} does not exist yet: it comes with the first letter, or make it"


async def letters_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await letters_view(request)
    return answer(
        request,
        watched,
        "letters.html",
        f"{shown(page.queue)} letters",
        page=page,
        query=table_query(request),
        reason=request.query_params.get("reason", ""),
        rate=redriving.RATE,
    )


def _text(form: FormData, name: str) -> str:
    found = form.get(name, "")
    return found.strip() if isinstance(found, str) else ""


async def plan_of(request: Request, form: FormData, watched: Watched, group: str) -> Plan:
    """What the form asks for; raises if that makes no sense."""
    topic = await letters_topic(watched.client, group)
    if isinstance(topic, Missing):
        raise Refused(409, f"There are no letters: {topic.reason}.")
    box, problem = await _box(request, watched, topic)
    if box is None:
        raise Refused(409, f"There are no letters: {problem}.")
    try:
        if _text(form, "which") == "all":
            places = [one.place for one in box.of_group(group)]
        else:
            named = [name.removeprefix("l:") for name in form if name.startswith("l:")]
            places = [redriving.parse_place(name) for name in named]
        rate = _text(form, "rate") or str(redriving.RATE)
        plan = Plan(
            group,
            topic,
            tuple(places),
            to=_text(form, "to"),
            same_partition=_text(form, "how") == "partition",
            dismiss=_text(form, "how") == "dismiss",
            force=bool(form.get("force")),
            rate=int(rate) if rate.isdecimal() and len(rate) < 8 else 0,
        )
        redriving.check(plan)
    except BadPlan as error:
        raise Refused(400, str(error)) from error
    return plan


@operates
async def redrive_preview(request: Request, form: FormData) -> Response:
    """Says what would be sent where; nothing is changed."""
    console = console_of(request)
    watched = console.cluster(request)
    group = unslug(request.path_params["queue"])
    plan = await plan_of(request, form, watched, group)
    box = watched.box(plan.topic)
    look = watched.look()
    seen = redriving.preview(plan, box.letters, box.entries.by_name, look.data.topics)
    return answer(
        request,
        watched,
        "redrive.html",
        f"{shown(group)} redrive",
        group=group,
        plan=plan,
        count=sum(seen.by_target.values()),
        seen=seen,
        readers=_readers(watched, [one for one in seen.by_target if one], group),
        signed=sealed(console.visitors.secret, "queue", group, redriving.to_json(plan)),
        frame=frame(look, watched.attention()),
    )


def _readers(watched: Watched, topics: list[str], group: str) -> list[str]:
    """Other groups and queues that read these topics: they get the records again, too."""
    data = watched.look().data
    found = {
        name
        for name, stamped in data.committed.items()
        if not isinstance(stamped.value, Missing)
        and any(key.topic in topics for key in stamped.value)
    }
    found |= {
        name
        for name, shares in data.shares.items()
        if not isinstance(shares.value, Missing)
        and any(one.topic in topics for one in shares.value)
    }
    return sorted(found - {group})


@operates
async def redrive(request: Request, form: FormData) -> Response:
    """Start what was previewed; the page of letters tells how far it is."""
    console = console_of(request)
    watched = console.cluster(request)
    group = unslug(request.path_params["queue"])
    found = opened(console.visitors.secret, "queue", group, _text(form, "plan"))
    start(request, watched, redriving.from_json(found), group)
    return RedirectResponse(console.links(watched.name).letters(group), 303)


def start(request: Request, watched: Watched, plan: Plan, group: str) -> None:
    """Carry the plan out, unless another one is under way."""
    console = console_of(request)
    running = watched.redrives.get(plan.topic)
    if running is not None and running.progress.state == "running":
        raise Refused(409, "A redrive of these letters is under way; stop it first.")
    watched.start_redrive(plan)
    console.audit(request, watched.name, "Write", f"redrive {plan.topic} for {group}", "started")


@operates
async def stop(request: Request, _: FormData) -> Response:
    """Stop after the transaction that is under way, which is aborted."""
    console = console_of(request)
    watched = console.cluster(request)
    group = unslug(request.path_params["queue"])
    topic = await letters_topic(watched.client, group)
    running = None if isinstance(topic, Missing) else watched.redrives.get(topic)
    if running is not None:
        running.task.cancel()
        console.audit(request, watched.name, "Write", f"redrive {topic} for {group}", "stopped")
    return RedirectResponse(console.links(watched.name).letters(group), 303)
