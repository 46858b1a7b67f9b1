"""Users, ACLs and quotas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ottla.client.admin.acls import AclCalls
from ottla.client.admin.quotas import QuotaCalls
from ottla.client.admin.users import UserCalls
from ottla.client.errors import ClientError, KafkaError
from ottla.console.app import console_of
from ottla.console.missing import Missing, missing
from ottla.console.pages.shared import answer, table_query
from ottla.console.snapshot import Kind
from ottla.console.views import security
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.security import SecurityPage

T = TypeVar("T")
NO_AUTHORIZER = Missing("the cluster has no authorizer: everybody may do everything")


async def security_view(request: Request) -> SecurityPage:
    """The page's values, asked for now: rights change seldom and must not be shown late."""
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER)
    client = watched.client
    users, acls, quotas = await asyncio.gather(
        _asked(UserCalls(client).describe_users(), "Describe on the cluster"),
        _asked(AclCalls(client).describe_acls(), "Describe on the cluster"),
        _asked(QuotaCalls(client).describe_quotas(), "DescribeConfigs on the cluster"),
    )
    return security.page(
        watched.look(), watched.attention(), users, acls, quotas, table_query(request)
    )


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
    query = table_query(request)
    return answer(request, watched, "security.html", "Security", page=page, query=query)
