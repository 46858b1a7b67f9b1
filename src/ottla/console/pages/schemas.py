"""The schema registry of the cluster."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.console.app import console_of
from ottla.console.missing import Missing
from ottla.console.pages.shared import answer, table_query
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import schemas
from ottla.schemas.model import SchemaError
from ottla.schemas.registry_client import RegistryRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.schemas import SchemaPage, SchemasPage
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
    subjects, level, mode = await asyncio.gather(
        _asked(registry.subjects()), _asked(registry.config()), _asked(registry.mode())
    )
    return schemas.page(look, attention, registry.url, subjects, level, mode, query)


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
    return schemas.subject_page(look, attention, name, versions, level, wanted)


async def _versions(registry: SchemaRegistry, subject: str) -> list[RegisteredSchema]:
    numbers = await registry.versions(subject)
    return [await registry.version(subject, one) for one in sorted(numbers)[-MOST_VERSIONS:]]


async def schemas_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page, query = await schemas_view(request), table_query(request)
    return answer(request, watched, "schemas.html", "Schemas", page=page, query=query)


async def schema_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await schema_view(request)
    return answer(request, watched, "schema.html", shown(page.name), page=page)
