"""Users, ACLs and quotas: shown, and changed as previewed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from starlette.responses import RedirectResponse

from ottla.client.admin.acls import AclCalls
from ottla.client.admin.quotas import QuotaCalls
from ottla.client.admin.users import UserCalls
from ottla.client.errors import ClientError, KafkaError
from ottla.console import rights
from ottla.console.app import console_of
from ottla.console.guard import changes
from ottla.console.missing import Missing, missing
from ottla.console.pages.changing import done, field
from ottla.console.pages.shared import answer, table_query
from ottla.console.problem import Refused
from ottla.console.signing import opened, sealed
from ottla.console.snapshot import Kind
from ottla.console.views import security
from ottla.console.views.frame import frame
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.client.admin.types import Acl, QuotaDescription, UserDescription
    from ottla.console.views.security import SecurityPage
    from ottla.console.watching import Watched

T = TypeVar("T")
NO_AUTHORIZER = Missing("the cluster has no authorizer: everybody may do everything")


class Asked(NamedTuple):
    """What the cluster says of rights now."""

    users: list[UserDescription] | Missing
    acls: list[Acl] | Missing
    quotas: list[QuotaDescription] | Missing


async def _ask(watched: Watched) -> Asked:
    client = watched.client
    return Asked(
        *await asyncio.gather(
            _asked(UserCalls(client).describe_users(), "Describe on the cluster"),
            _asked(AclCalls(client).describe_acls(), "Describe on the cluster"),
            _asked(QuotaCalls(client).describe_quotas(), "DescribeConfigs on the cluster"),
        )
    )


async def security_view(request: Request) -> SecurityPage:
    """The page's values, asked for now: rights change seldom and must not be shown late."""
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER)
    found = await _ask(watched)
    return security.page(watched.look(), watched.attention(), *found, table_query(request))


async def _asked(work: Awaitable[T], needs: str) -> T | Missing:
    try:
        return await work
    except KafkaError as error:
        if error.code == ErrorCode.SECURITY_DISABLED:
            return NO_AUTHORIZER
        return missing(error, needs)
    except ClientError as error:
        return missing(error, needs)


async def security_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await security_view(request)
    return answer(
        request,
        watched,
        "security.html",
        "Security",
        page=page,
        query=table_query(request),
        words=rights.words(),
    )


@changes
async def preview(request: Request, form: FormData) -> Response:
    """Says what a change would do; nothing is changed."""
    console = console_of(request)
    watched = console.cluster(request)
    change = rights.parse({key: field(form, key) for key in form})
    found = await _ask(watched)
    if found.acls is NO_AUTHORIZER and change.acls:
        raise Refused(409, "The cluster has no authorizer, so it keeps no rules: set one first.")
    seen = rights.preview(change, *found, watched.cluster.settings.security.sasl_username)
    return answer(
        request,
        watched,
        "confirm.html",
        seen.title,
        section="security",
        up=console.links(watched.name).page("security"),
        up_words="Security",
        apply=console.links(watched.name).security("apply"),
        seen=seen,
        line=console.commands(watched.name).rights(change),
        signed=sealed(console.visitors.secret, "security", watched.name, rights.to_json(change)),
        frame=frame(watched.look(), watched.attention()),
    )


@changes
async def apply(request: Request, form: FormData) -> Response:
    """The change as it was previewed."""
    console = console_of(request)
    watched = console.cluster(request)
    found = opened(console.visitors.secret, "security", watched.name, field(form, "change"))
    change = rights.from_json(found)
    work = rights.apply(watched.client, change)
    await done(request, watched, change.operation, change.resource, work)
    return RedirectResponse(console.links(watched.name).page("security"), 303)
