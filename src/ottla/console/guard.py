"""What stands before every handler: the host check, safe headers, CSRF, and the gate for changes.

- `Host` must be loopback, the listen address or one of `hosts`: otherwise a page of another site
  could talk to the console under a name of its own (DNS rebinding).
- Every answer has the headers of `HEADERS`. No inline script or style exists.
- Changes are POST only. `Origin` (else `Sec-Fetch-Site`) must be ours, and the form has a token
  that belongs to the visitor's cookie.
- Every handler that changes something wears `@changes`, or `@operates` if an operator may do it;
  there is no other gate.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import FormData
from starlette.responses import PlainTextResponse

from ottla.console.accounts import Role
from ottla.console.login import person_of
from ottla.console.problem import Refused
from ottla.console.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ottla.console.settings import Settings

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # Not `no-referrer`: browsers would send `Origin: null` with our own forms, too.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
NO_STORE: Final = (b"cache-control", b"no-store")
SAFE: Final = frozenset({"GET", "HEAD"})
MAX_FORM_BYTES: Final = 2 * 1024 * 1024
"""A form carries at most one record of a megabyte, escaped."""
MAX_FIELDS: Final = 100
"""The largest form is a page of 50 letters, all of them chosen, and how to send them."""
MISDIRECTED: Final = 421

logger = logging.getLogger(__name__)

Handler: TypeAlias = "Callable[[Request], Awaitable[Response]]"
Change: TypeAlias = "Callable[[Request, FormData], Awaitable[Response]]"
ApiChange: TypeAlias = "Callable[[Request, dict[str, Any]], Awaitable[Response]]"


class Guard:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = {settings.host, *settings.hosts}
        self._named = set(settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        is_begun = False

        async def guarded(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                extra = [*HEADERS] if b"cache-control" in present else [*HEADERS, NO_STORE]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        refused = self._refusal(scope)
        try:
            await (self._app if refused is None else refused)(scope, receive, guarded)
        except Exception:
            logger.exception("a request failed")
            if is_begun:
                raise
            await PlainTextResponse("The console failed; see its log.\n", 500)(
                scope, receive, guarded
            )

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self._is_ours(host):
            return PlainTextResponse(
                f"The console does not serve the host {host[:100]!r}; name it in `hosts` of "
                "console.toml if it should.\n",
                MISDIRECTED,
            )
        if scope["method"] in SAFE or _is_same_origin(headers, host, self._named):
            return None
        return PlainTextResponse("This request comes from another site; it is refused.\n", 403)

    def _is_ours(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname if _is_plain(host) else None
        return name is not None and (name in self._hosts or is_loopback(name))


def _is_plain(host: str) -> bool:
    return bool(host) and not set(host) & set("/?#@\\ ")


def _is_same_origin(headers: dict[bytes, str], host: str, hosts: set[str]) -> bool:
    origin = headers.get(b"origin")
    if origin is not None:
        try:
            found = urlsplit(origin)
            is_named = found.port is None and found.hostname in hosts
        except ValueError:
            return False
        # A proxy may serve one of `hosts` on the usual port and ask us under another name.
        return found.netloc == host or is_named
    return headers.get(b"sec-fetch-site", "same-origin") in ("same-origin", "none")


class Visitors:
    """The cookie of a visitor and the token that forms of its pages carry."""

    def __init__(self, settings: Settings) -> None:
        self.secret = secrets.token_bytes(32)
        """Signs what forms carry; another one after each start."""
        # Cookies do not know ports.
        self.cookie = f"ottla-console-{settings.port}"
        self._path = settings.base_path
        self._is_secure = settings.scheme == "https"

    def id_of(self, request: Request) -> str | None:
        """The visitor's cookie, None if it has none yet."""
        found = request.cookies.get(self.cookie)
        return found if found and len(found) <= 100 else None

    def token(self, visitor: str) -> str:
        return hmac.new(self.secret, visitor.encode(), hashlib.sha256).hexdigest()

    def check(self, request: Request, form: FormData) -> None:
        """Raise if the form was not made by a page of this visitor's."""
        visitor = self.id_of(request)
        given = form.get("token")
        if visitor is None or not isinstance(given, str):
            raise Refused(403, "The form has no token; load the page again and repeat it.")
        if not hmac.compare_digest(self.token(visitor).encode(), given.encode()):
            raise Refused(403, "The form's token is not yours; load the page again and repeat it.")

    def ensure(self, request: Request) -> tuple[str, bool]:
        """The visitor's cookie, and whether it is new and has to be set."""
        found = self.id_of(request)
        return (found, False) if found is not None else (secrets.token_urlsafe(32), True)

    def set_cookie(self, response: Response, visitor: str) -> None:
        response.set_cookie(
            self.cookie,
            visitor,
            path=self._path,
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
        )

    def delete_cookie(self, response: Response) -> None:
        response.delete_cookie(self.cookie, path=self._path, httponly=True, samesite="strict")


async def read_form(request: Request) -> FormData:
    """What a form of ours sends; it has no files, so one encoding is enough."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "A form is sent as application/x-www-form-urlencoded.")
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > MAX_FORM_BYTES:
        raise Refused(413, f"A form has at most {MAX_FORM_BYTES:,} bytes.")
    try:
        text = (await request.body()).decode("ascii")
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Refused(400, "The form cannot be read; load the page again.") from error
    return FormData(dict(fields))


def gate(role: Role) -> Callable[[Change], Handler]:
    """The gate: only a POST with a token by somebody with the role, where writing is on."""

    def gated_by(handler: Change) -> Handler:
        @functools.wraps(handler)
        async def gated(request: Request) -> Response:
            console = request.app.state.console
            console.check_change(request, role)
            form = await read_form(request)
            # A browser never sends a token by itself, so no other page can make it do so.
            if not person_of(request).has_token:
                console.visitors.check(request, form)
            return await handler(request, form)

        gated.role = role  # type: ignore[attr-defined]  # read by the tests that walk all routes
        return gated

    return gated_by


async def read_json(request: Request) -> dict[str, Any]:
    """The object that a program sends."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise Refused(415, "A change is sent as application/json.")
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > MAX_FORM_BYTES:
        raise Refused(413, f"A change has at most {MAX_FORM_BYTES:,} bytes.")
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"The change is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise Refused(400, 'The change is an object such as {"dry_run": false}.')
    return found


def api_gate(role: Role) -> Callable[[ApiChange], Handler]:
    """The gate of the API: JSON, by somebody with the role, where writing is on.

    It needs no token of a form. A page of another site cannot send JSON here: browsers ask first
    whether they may, and we never say so; `Guard` looks at the origin as well.
    """

    def gated_by(handler: ApiChange) -> Handler:
        @functools.wraps(handler)
        async def gated(request: Request) -> Response:
            request.app.state.console.check_change(request, role)
            return await handler(request, await read_json(request))

        gated.role = role  # type: ignore[attr-defined]  # read by the tests that walk all routes
        return gated

    return gated_by


changes = gate(Role.ADMIN)
"""Topics, configs, and all that deletes."""
operates = gate(Role.OPERATOR)
"""Produce, redrive, reset, fence."""
