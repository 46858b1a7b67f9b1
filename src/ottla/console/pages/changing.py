"""What handlers that change something share: fields of forms, an Admin, the audit line, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.admin.admin import Admin
from ottla.client.errors import (
    REFUSED,
    BadArgument,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
)
from ottla.console.app import console_of
from ottla.console.problem import Refused
from ottla.redaction import redact
from ottla.schemas.model import SchemaError
from ottla.schemas.registry_client import RegistryRefused, RegistryUnreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.datastructures import FormData
    from starlette.requests import Request

    from ottla.console.watching import Watched

RETRY_AFTER: Final = 5
"""Seconds after which a cluster that did not answer may be tried again."""

KEPT: Final = (403, 404, 422, 503)
"""Statuses of a registry that mean the same here."""


def field(form: FormData, name: str) -> str:
    """What was typed, as it is; empty if the form has no such field."""
    found = form.get(name, "")
    return found if isinstance(found, str) else ""


def admin_of(watched: Watched) -> Admin:
    """With the credentials of the console or, if people log in as users, of this person."""
    settings = watched.cluster.settings
    return Admin(
        settings.bootstrap,
        client_id="ottla-console",
        security=settings.security,
        api_timeout=10.0,
    )


def refusal(error: ClientError | SchemaError) -> Refused:
    """503 for a cluster or a registry that is away, 400 for a wrong value, 409 for a refusal."""
    said = " ".join(redact(error).split())
    if isinstance(error, REFUSED):
        return Refused(409, said)
    if isinstance(error, BrokerUnreachable):
        return Refused(503, f"{said.rstrip('.')}. Nothing was changed; try again.", RETRY_AFTER)
    if isinstance(error, ConnectionLost | RequestTimedOut | RegistryUnreachable):
        unknown = "It is not known whether the change was made: look before you repeat it."
        return Refused(503, f"{said.rstrip('.')}. {unknown}", RETRY_AFTER)
    if isinstance(error, RegistryRefused):
        return Refused(error.status if error.status in KEPT else 409, said)
    return Refused(400 if isinstance(error, BadArgument | SchemaError) else 409, said)


async def done(
    request: Request, watched: Watched, operation: str, resource: str, work: Awaitable[object]
) -> None:
    """Do it, and write the audit line, whatever comes of it."""
    console = console_of(request)
    try:
        await work
    except (ClientError, SchemaError) as error:
        console.audit(request, watched.name, operation, resource, "failed")
        raise refusal(error) from error
    console.audit(request, watched.name, operation, resource, "done")
