"""The application: routes, what handlers share, and how errors are answered."""

from __future__ import annotations

import asyncio
import hashlib
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ottla.client.errors import ClientError, KafkaError
from ottla.console import audit
from ottla.console.accounts import Role
from ottla.console.attempts import Attempts
from ottla.console.commands import Commands
from ottla.console.door import Door, upkeep
from ottla.console.door import routes as login_routes
from ottla.console.guard import Guard, Visitors
from ottla.console.links import Links
from ottla.console.login import person_of
from ottla.console.probes import routes as probe_routes
from ottla.console.problem import Refused
from ottla.console.query import Stopped
from ottla.console.render import Renderer
from ottla.console.slugs import BadSlug
from ottla.console.text import name as shown
from ottla.console.views.frame import Frame, time_of
from ottla.redaction import redact

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime

    from starlette.requests import Request

    from ottla.clock import Clock
    from ottla.console.keeping import Keeper
    from ottla.console.login import Doorkeeper, Person
    from ottla.console.own import Owners
    from ottla.console.settings import ClusterSettings, Settings
    from ottla.console.watching import Watched

STATIC: Final = Path(__file__).parent / "static"
THEMES: Final = ("auto", "light", "dark")
NAMES: Final = {
    "overview": "Overview",
    "topics": "Topics",
    "groups": "Groups",
    "queues": "Queues",
    "transactions": "Transactions",
    "nodes": "Nodes",
    "tier": "Tier",
    "tables": "Tables",
    "pipelines": "Pipelines",
    "schemas": "Schemas",
    "security": "Security",
    "doctor": "Doctor",
}
"""Pages in navigation, in their order."""
MAX_REFRESH: Final = 3600
_AGE: Final = re.compile(r'<span id="age">[^<]*</span>')


@dataclass(slots=True)
class Console:
    """What all handlers share: `request.app.state.console`."""

    settings: Settings
    clusters: Mapping[str, Watched]
    clock: Clock
    visitors: Visitors
    door: Doorkeeper
    keeper: Keeper | None = None
    """Keeps the history in a file, if there is one."""
    owners: Owners | None = None
    """With `auth = "sasl"`: the clusters as each person sees them."""
    renderer: Renderer = field(default_factory=Renderer)
    version: str = field(default_factory=lambda: version("ottla"))
    last_asked: float = 0.0
    """When the last request came, by the monotonic clock: an idle console leaves."""
    searches: asyncio.Semaphore = field(init=False)
    waiting: int = 0
    """Searches that wait for their turn."""
    streams: dict[str, int] = field(default_factory=dict)
    """Live tails by visitor."""
    requests: int = 0
    attempts: Attempts = field(default_factory=Attempts)
    checking: int = 0
    """Logins that are being checked."""
    hashing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.searches = asyncio.Semaphore(self.settings.max_searches)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the clusters."""
        return tuple(one.name for one in self.settings.clusters)

    def now(self) -> datetime:
        return time_of(self.clock.wall_ms())

    def cluster(self, request: Request) -> Watched:
        """The cluster of a page's path, as this person sees it."""
        return self.cluster_named(request, request.path_params["cluster"])

    def cluster_named(self, request: Request, asked: str) -> Watched:
        """The cluster of this name, as this person sees it."""
        found = self._clusters_of(request).get(asked)
        if found is None:
            known = ", ".join(self.names)
            raise Refused(404, f"There is no cluster {shown(asked)}; there are: {known}.")
        return found

    def _clusters_of(self, request: Request) -> Mapping[str, Watched]:
        if self.owners is None:
            return self.clusters
        login = person_of(request).login
        if not login:
            raise Refused(
                403, "Each person sees the clusters as a user of their own here: log in by name."
            )
        found = self.owners.of(login, self.clock.monotonic())
        if found is None:  # it ended while the request was read
            raise Refused(401, "The login is over; log in again.")
        return found

    def find_person(self, request: Request) -> Person | None:
        """Who asks; None: nobody whom we know."""
        cookie = self.visitors.id_of(request)
        return self.door.person(request, cookie, self.clock.monotonic(), self.now())

    def address(self, request: Request) -> str:
        """Where the request comes from, behind trusted proxies."""
        return self.door.proxies.address(request)

    def safe_path(self, path: str) -> str:
        """The path if it is one of ours; never `//host`, nor what browsers read as one."""
        base = self.settings.base_path
        is_ours = path.startswith(base) and not path.startswith("//") and "\\" not in path
        return path if is_ours and path.isprintable() else base

    def cluster_settings(self, cluster: str) -> ClusterSettings:
        return next(one for one in self.settings.clusters if one.name == cluster)

    def links(self, cluster: str) -> Links:
        return Links(self.settings.base_path, cluster, self.version)

    def commands(self, cluster: str) -> Commands:
        one = self.cluster_settings(cluster)
        return Commands(one.bootstrap, one.command_config)

    def check_change(self, request: Request, role: Role) -> None:
        """Raise unless this visitor may change something in this cluster."""
        cluster = self.cluster(request).name
        if not self._is_writable(cluster):
            raise Refused(403, "This console is read-only; start it with --write to change things.")
        own = person_of(request).role
        if own < role:
            raise Refused(403, f"This needs the role {role.word}; yours is {own.word}.")

    def _is_writable(self, cluster: str) -> bool:
        return self.settings.write and self.cluster_settings(cluster).write

    def can(self, request: Request, cluster: str, role: Role) -> bool:
        """Whether this visitor may do what needs the role."""
        return self._is_writable(cluster) and person_of(request).role >= role

    def audit(
        self, request: Request, cluster: str, operation: str, resource: str, outcome: str
    ) -> None:
        """Write the line of a change."""
        audit.logger.info(
            "%s",
            audit.line(
                self.clock.wall_ms(),
                principal=person_of(request).principal,
                cluster=cluster,
                host=self.address(request),
                operation=operation,
                resource=resource,
                outcome=outcome,
            ),
        )

    def audit_login(self, request: Request, user: str, outcome: str, reason: str = "") -> None:
        """Write the line of a login."""
        audit.logger.info(
            "%s",
            audit.login_line(
                self.clock.wall_ms(),
                user=user,
                host=self.address(request),
                outcome=outcome,
                reason=reason,
            ),
        )

    def html(
        self,
        request: Request,
        template: str,
        context: Mapping[str, object],
        *,
        cluster: str = "",
        status: int = 200,
    ) -> Response:
        """A page, with what the base template needs."""
        visitor, is_new = self.visitors.ensure(request)
        theme = request.cookies.get("ottla-console-theme", "auto")
        name = cluster or self.names[0]
        refresh = request.query_params.get("refresh", "")
        body = self.renderer.page(
            template,
            {
                "frame": None,
                "cluster": name,
                "clusters": self.names,
                "link": self.links(name),
                "command": self.commands(name),
                "names": NAMES,
                "theme": theme if theme in THEMES else "auto",
                "here": _here(request),
                "refresh": int(refresh) if _is_refresh(refresh) else None,
                "token": self.visitors.token(visitor),
                "read_only": not self._is_writable(name),
                "can_write": self.can(request, name, Role.OPERATOR),
                "can_admin": self.can(request, name, Role.ADMIN),
                "person": person_of(request).name,
                "has_login": bool(person_of(request).login),
                "version": self.version,
                **context,
            },
        )
        tag = page_tag(body)
        frame = context.get("frame")
        headers = {"etag": tag}
        if isinstance(frame, Frame) and frame.age_s is not None:
            headers["ottla-age"] = f"{frame.age_s:.1f}"
        if status == 200 and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        response = HTMLResponse(body, status, headers)
        if is_new:
            self.visitors.set_cookie(response, visitor)
        return response


def page_tag(body: str) -> str:
    """The same for pages that differ in the age of their data alone."""
    plain = _AGE.sub("", body, count=1).encode("utf-8", "surrogatepass")
    return f'"{hashlib.blake2b(plain, digest_size=16).hexdigest()}"'


def _is_refresh(text: str) -> bool:
    return text.isdecimal() and len(text) < 5 and 0 < int(text) <= MAX_REFRESH


def _here(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def console_of(request: Request) -> Console:
    found: Console = request.app.state.console
    return found


async def home(request: Request) -> Response:
    console = console_of(request)
    return RedirectResponse(console.links(console.names[0]).overview(), 303)


async def theme(request: Request) -> Response:
    """Keep the theme in a cookie, so that pages come in the right one without JavaScript."""
    console = console_of(request)
    to = request.query_params.get("to", "auto")
    response = RedirectResponse(console.safe_path(request.query_params.get("back", "")), 303)
    response.set_cookie(
        "ottla-console-theme",
        to if to in THEMES else "auto",
        max_age=365 * 86_400,
        path=console.settings.base_path,
        samesite="strict",
        httponly=True,
    )
    return response


def _error(request: Request, status: int, sentence: str, retry: int | None = None) -> Response:
    console = console_of(request)
    if request.url.path.startswith(f"{console.settings.base_path}api/"):
        problem = {"type": "about:blank", "status": status, "title": sentence, "detail": sentence}
        response: Response = JSONResponse(problem, status, media_type="application/problem+json")
    else:
        name = request.path_params.get("cluster", "")
        known = name if name in console.names else ""
        context = {"title": f"Error {status}", "sentence": sentence, "status": status}
        response = console.html(request, "error.html", context, cluster=known, status=status)
    if retry is not None:
        response.headers["retry-after"] = str(retry)
    return response


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _error(request, error.status, error.sentence, error.retry_after)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {
        404: "There is no such page.",
        405: "This page cannot be asked in this way; changes are POST, pages are GET.",
    }
    return _error(request, error.status_code, sentences.get(error.status_code, error.detail))


async def _bad_name(request: Request, error: Exception) -> Response:
    return _error(request, 404, str(error))


async def _of_cluster(request: Request, error: Exception) -> Response:
    """A cluster that refuses is answered with 502, one that is away with 503."""
    status = 502 if isinstance(error, KafkaError) else 503
    return _error(request, status, " ".join(redact(error).split()), None if status == 502 else 5)


async def _nobody_waits(_: Request, __: Exception) -> Response:
    """The visitor has closed the page; nobody reads this."""
    return Response(status_code=499)


def application(
    settings: Settings,
    clusters: Mapping[str, Watched],
    routes: Sequence[Route],
    clock: Clock,
    door: Doorkeeper,
    owners: Owners | None = None,
    keeper: Keeper | None = None,
) -> Starlette:
    """The whole console below its base path; with `owners`, `clusters` is empty."""
    console = Console(settings, clusters, clock, Visitors(settings), door, keeper, owners)
    if owners is not None:
        door.logins.on_end = owners.end

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for one in clusters.values():
            one.start()
        tasks = [asyncio.create_task(upkeep(console))]
        if keeper is not None:
            tasks.append(asyncio.create_task(keeper.run()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if keeper is not None:
                await keeper.close()
            await asyncio.gather(*(one.close() for one in clusters.values()))
            if owners is not None:
                await owners.close()

    inner: list[Any] = [
        Route("/", home),
        Route("/theme", theme),
        *probe_routes(),
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
        *login_routes(),
        *routes,
    ]
    prefix = settings.base_path.rstrip("/")
    app = Starlette(
        routes=[Mount(prefix, routes=inner)] if prefix else inner,
        middleware=[
            Middleware(Guard, settings=settings),
            Middleware(_Clocked, console=console),
            Middleware(Door, console=console),
        ],
        exception_handlers={
            Refused: _refused,
            HTTPException: _http,
            BadSlug: _bad_name,
            ClientError: _of_cluster,
            Stopped: _nobody_waits,
        },
        lifespan=lifespan,
    )
    app.state.console = console
    return app


class _Clocked:
    """Notes when somebody asked last, and counts."""

    def __init__(self, app: Any, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._console.last_asked = self._console.clock.monotonic()
        self._console.requests += scope["type"] == "http"
        await self._app(scope, receive, send)
