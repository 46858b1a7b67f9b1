"""The schema registry of the cluster: shown, and changed as previewed."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.responses import RedirectResponse

from ottla.console import subjects
from ottla.console.app import console_of
from ottla.console.guard import changes
from ottla.console.missing import Missing
from ottla.console.pages.changing import done, field, refusal
from ottla.console.pages.shared import answer, table_query
from ottla.console.problem import Refused
from ottla.console.signing import opened, sealed
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import schemas
from ottla.console.views.frame import frame
from ottla.schemas.model import SchemaError
from ottla.schemas.registry_client import RegistryRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.schemas import SchemaPage, SchemasPage
    from ottla.console.watching import Watched
    from ottla.schemas.registry_client import RegisteredSchema, SchemaRegistry

T = TypeVar("T")
NO_REGISTRY: Final = Missing(
    "no schema registry is known: start the broker with --registry, or set registry of the cluster"
)
MOST_VERSIONS: Final = 50
"""Versions of a subject that are listed, the newest; each is a request."""


class NoSubject(Missing):
    """The registry does not have it."""


async def _asked(work: Awaitable[T]) -> T | Missing:
    try:
        return await work
    except RegistryRefused as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return NoSubject(str(error))
        return Missing("not allowed" if error.status in (401, 403) else str(error))
    except SchemaError as error:
        return Missing(str(error))


async def schemas_view(request: Request) -> SchemasPage:
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER)
    registry = await watched.registry.client()
    look, attention, query = watched.look(), watched.attention(), table_query(request)
    if registry is None:
        return schemas.page(look, attention, "", NO_REGISTRY, NO_REGISTRY, NO_REGISTRY, query)
    listed, level, mode = await asyncio.gather(
        _asked(registry.subjects()), _asked(registry.config()), _asked(registry.mode())
    )
    return schemas.page(look, attention, registry.url, listed, level, mode, query)


async def schema_view(request: Request) -> SchemaPage:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["subject"])
    await watched.fresh(Kind.CLUSTER)
    registry = await watched.registry.client()
    look, attention = watched.look(), watched.attention()
    if registry is None:
        return schemas.subject_page(look, attention, name, NO_REGISTRY, NO_REGISTRY)
    versions, level = await asyncio.gather(
        _asked(_versions(registry, name)), _asked(registry.config(name))
    )
    asked = request.query_params.get("version", "")
    wanted = int(asked) if asked.isdecimal() and len(asked) < 10 else None
    # Two long versions take seconds to compare.
    return await asyncio.to_thread(
        schemas.subject_page, look, attention, name, versions, level, wanted
    )


async def _versions(registry: SchemaRegistry, subject: str) -> list[RegisteredSchema]:
    numbers = await registry.versions(subject)
    return [await registry.version(subject, one) for one in sorted(numbers)[-MOST_VERSIONS:]]


async def schemas_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page, query = await schemas_view(request), table_query(request)
    return answer(
        request, watched, "schemas.html", "Schemas", page=page, query=query, levels=subjects.LEVELS
    )


async def schema_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await schema_view(request)
    return answer(
        request, watched, "schema.html", shown(page.name), page=page, levels=subjects.LEVELS
    )


async def _registry(watched: Watched) -> SchemaRegistry:
    found = await watched.registry.client()
    if found is None:
        raise Refused(409, f"There is nothing to change: {NO_REGISTRY}.")
    return found


@changes
async def preview(request: Request, form: FormData) -> Response:
    """Says what a change would do; nothing is changed."""
    console = console_of(request)
    watched = console.cluster(request)
    change = subjects.parse({key: field(form, key) for key in form})
    registry = await _registry(watched)
    try:
        seen = await subjects.preview(registry, change)
    except SchemaError as error:
        raise refusal(error) from error
    signed = sealed(console.visitors.secret, "registry", registry.url, subjects.to_json(change))
    link = console.links(watched.name)
    return answer(
        request,
        watched,
        "confirm.html",
        seen.title,
        section="schemas",
        up=link.schema(change.subject) if change.subject else link.page("schemas"),
        up_words=change.subject or "Schemas",
        apply=link.schemas("apply"),
        seen=seen,
        line=console.commands(watched.name).subject(change),
        signed=signed if seen.allowed else "",
        frame=frame(watched.look(), watched.attention()),
    )


@changes
async def apply(request: Request, form: FormData) -> Response:
    """The change as it was previewed; the registry checks a schema again."""
    console = console_of(request)
    watched = console.cluster(request)
    registry = await _registry(watched)
    found = opened(console.visitors.secret, "registry", registry.url, field(form, "change"))
    change = subjects.from_json(found)
    work = subjects.apply(registry, change)
    await done(request, watched, change.operation, change.resource, work)
    link = console.links(watched.name)
    is_gone = not change.subject or (change.do == "delete" and change.version is None)
    return RedirectResponse(link.page("schemas") if is_gone else link.schema(change.subject), 303)
