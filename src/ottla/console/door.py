"""The door: every request but those for the login itself comes from somebody whom we know."""

from __future__ import annotations

import asyncio
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse

from ottla.client.errors import ClientError
from ottla.console.accounts import MAX_PASSWORD, Role, is_name, read_users
from ottla.console.guard import read_form
from ottla.console.login import NOBODY, PERSON, person_of
from ottla.console.own import WrongLogin
from ottla.console.problem import Refused
from ottla.console.settings import BadSetting

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ottla.console.app import Console

OPEN: Final = ("login", "static/", "healthz", "readyz")
"""Paths that ask for no login: the login itself, how it looks, and what a supervisor asks."""
MAX_CHECKING: Final = 16
"""Passwords that wait to be checked, one after the other: each takes 16 MiB and 0.2 s."""
UPKEEP_SECONDS: Final = 5.0
"""Between looks at the users file, and at logins and connections that are over."""
WRONG: Final = "The name or the password is wrong."

logger = logging.getLogger(__name__)


class Door:
    """Middleware that finds out who asks."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        person = self._console.find_person(request)
        scope[PERSON] = NOBODY if person is None else person
        if person is None and not self._is_open(request):
            await self._turned_away(request)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_open(self, request: Request) -> bool:
        base = self._console.settings.base_path
        path = request.url.path
        return any(
            path == f"{base}{one}" or (one.endswith("/") and path.startswith(f"{base}{one}"))
            for one in OPEN
        )

    def _turned_away(self, request: Request) -> Response:
        base = self._console.settings.base_path
        door = self._console.door
        is_page = request.method in ("GET", "HEAD") and not request.url.path.startswith(
            (f"{base}api/", f"{base}metrics")
        )
        if is_page and door.has_form and "authorization" not in request.headers:
            query = f"?{request.url.query}" if request.url.query else ""
            back = urlencode({"back": f"{request.url.path}{query}"})
            return RedirectResponse(f"{base}login?{back}", 303)
        sentence = (
            "The proxy in front of the console names nobody; log in there."
            if door.how == "proxy"
            else "Log in first, or send a token of the console's tokens_file as Bearer."
        )
        problem = {"type": "about:blank", "status": 401, "title": sentence, "detail": sentence}
        return JSONResponse(
            problem,
            401,
            headers={"www-authenticate": 'Bearer realm="ottla console"'},
            media_type="application/problem+json",
        )


async def login_form(request: Request) -> Response:
    console: Console = request.app.state.console
    if not console.door.has_form:
        raise Refused(404, "This console has no login of its own.")
    if person_of(request) is not NOBODY:
        return RedirectResponse(console.safe_path(request.query_params.get("back", "")), 303)
    return _page(console, request, request.query_params.get("back", ""))


def _page(
    console: Console, request: Request, back: str, problem: str = "", status: int = 200
) -> Response:
    context = {"title": "Log in", "names": {}, "back": back, "problem": problem, "how": ""}
    if console.door.how == "sasl":
        context["how"] = "With the name and password of a user of the cluster."
    return console.html(request, "login.html", context, status=status)


async def login(request: Request) -> Response:
    """Check the name and the password; five wrong ones in a minute are enough."""
    console: Console = request.app.state.console
    if not console.door.has_form:
        raise Refused(404, "This console has no login of its own.")
    form = await read_form(request)
    console.visitors.check(request, form)
    name, password, back = (str(form.get(one, "")) for one in ("name", "password", "back"))
    keys = (("account", name), ("address", console.address(request)))
    began = console.clock.monotonic()
    wait = console.attempts.wait(keys, began)
    if wait > 0:
        seconds = math.ceil(wait)
        raise Refused(429, f"Too many wrong logins; try again in {seconds} s.", seconds)
    console.attempts.begin(keys, began)
    try:
        cookie = await _checked(console, name, password)
    except ClientError as error:
        console.attempts.succeeded(keys, began)  # nobody has looked at the password
        sentence = " ".join(str(error).split())
        return _page(console, request, back, f"The cluster cannot be asked: {sentence}", 503)
    if cookie is None:
        console.audit_login(request, name, "failure", "wrong name or password")
        return _page(console, request, back, WRONG, 401)
    console.attempts.succeeded(keys, began)
    console.audit_login(request, name, "success")
    response = RedirectResponse(console.safe_path(back), 303)
    console.visitors.set_cookie(response, cookie)
    return response


async def _checked(console: Console, name: str, password: str) -> str | None:
    """The cookie of a new login; None if the name or the password is wrong."""
    door = console.door
    if not is_name(name) or not 0 < len(password.encode("utf-8", "replace")) <= MAX_PASSWORD:
        return None
    if console.checking >= MAX_CHECKING:
        raise Refused(429, "Too many people log in; try again in a moment.", 2)
    console.checking += 1
    try:
        if console.owners is not None:
            try:
                await console.owners.check(name, password)
            except WrongLogin:
                return None
            # The brokers decide what this user may do.
            now = console.clock.monotonic()
            cookie = door.logins.open(name, now, Role.ADMIN)
            console.owners.add(cookie, name, password, now)
            return cookie
        async with console.hashing:
            users = door.users
            role = await asyncio.to_thread(users.check, name, password)
        # The file may have got another password for the user while this one was checked.
        if role is None or not door.users.has_same(users, name):
            return None
        return door.logins.open(name, console.clock.monotonic())
    finally:
        console.checking -= 1


async def logout(request: Request) -> Response:
    console: Console = request.app.state.console
    console.visitors.check(request, await read_form(request))
    person = person_of(request)
    if person.login:
        console.door.logins.close(person.login)
        console.audit_login(request, person.name, "logout")
    response = RedirectResponse(f"{console.settings.base_path}login", 303)
    console.visitors.delete_cookie(response)
    return response


def routes() -> list[Route]:
    from starlette.routing import Route

    return [
        Route("/login", login_form),
        Route("/login", login, methods=["POST"]),
        Route("/logout", logout, methods=["POST"]),
    ]


async def upkeep(console: Console) -> None:
    """Until it is cancelled: take a changed users file, end what is over."""
    file = Path(console.settings.users_file)
    seen: tuple[int, int, int] | None = None
    while True:
        await asyncio.sleep(UPKEEP_SECONDS)
        now = console.clock.monotonic()
        console.door.logins.expire(now)
        if console.owners is not None:
            console.owners.sweep(now)
        if console.door.how not in ("password", "proxy"):
            continue
        stamp = await asyncio.to_thread(_stamp, file)
        if stamp is None or stamp == seen:
            continue
        seen = stamp
        try:
            users = await asyncio.to_thread(read_users, file)
        except BadSetting as error:
            logger.warning("the users stay as they were: %s", error)
            continue
        if console.door.how == "password" and not users.has_passwords:
            # Such as a file that an editor has emptied and not yet written.
            logger.warning("the users stay as they were: %s has no users", file)
            continue
        console.door.replace_users(users)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
