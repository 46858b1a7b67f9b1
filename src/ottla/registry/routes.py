"""The registry's REST API: which function answers which request, and which right it needs.

`ROUTES` is the whole API. What is not there is answered with 404 and a sentence: exporters, keys of
encryption (KEK, DEK) and associations are not built.

Whether a subject exists is told only to those who may read it (`callers`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.http.messages import Answer, Refused, Request
from ottla.http.routes import Routes
from ottla.registry import bodies, views
from ottla.registry.bodies import MEDIA_TYPES, V1, query_of
from ottla.registry.callers import Action, Caller, need, need_all
from ottla.registry.errors import LedElsewhere, RegistryError
from ottla.registry.names import checked, context_of, split
from ottla.registry.requests import DeleteSubject, DeleteVersion, SetConfig, SetMode
from ottla.registry.service import messages
from ottla.registry.state import COMPATIBILITY, IMPORT
from ottla.schemas.model import Kind

if TYPE_CHECKING:
    from ottla.http.routes import Handler
    from ottla.registry.service import Registry
    from ottla.registry.state import State, Version

Identify = Callable[[Request], Awaitable[Caller]]
"""Who asks; `Refused` if that cannot be told and must be."""
PassOn = Callable[[Request, Any], Awaitable[Answer | None]]
"""Of a request and its caller, as `Identify` has made it: the answer of the node that decides; None
if it is this one."""
SUBJECTS_A_TURN: Final = 1000
"""Names that are looked at before others have their turn on the event loop, about a millisecond."""


class About(NamedTuple):
    cluster_id: str
    version: str


class Call(NamedTuple):
    """One request of a caller."""

    request: Request
    caller: Caller
    api: str
    """As the audit log names it: `registry.register`."""

    @property
    def query(self) -> bodies.Query:
        return query_of(self.request)

    def subject(self, action: Action, *, or_context: bool = False) -> str:
        """The one of the path, if the caller may do this with it."""
        subject = checked(self.request.parameters["subject"], or_context=or_context)
        if or_context and not split(subject).name:
            if action is not Action.READ:
                need_all(self.caller, self.api)
            return subject
        need(self.caller, self.api, action, subject)
        return subject

    def sees(self, subject: str) -> bool:
        return self.caller.may(Action.READ, split(subject).topic)

    @property
    def version(self) -> int | None:
        return bodies.version_number(self.request.parameters["version"])


class Api:
    """The handlers. Each returns what becomes JSON."""

    def __init__(self, registry: Registry, about: About) -> None:
        self._registry = registry
        self._about = about

    # -- about the registry -----------------------------------------------------------------------

    async def root(self, call: Call) -> object:
        return {}

    async def types(self, call: Call) -> object:
        return [Kind.JSON, Kind.PROTOBUF, Kind.AVRO]

    async def cluster(self, call: Call) -> object:
        scope = {"kafka-cluster": self._about.cluster_id, "schema-registry-cluster": "ottla"}
        return {"scope": {"path": [], "clusters": scope}, "id": self._about.cluster_id}

    async def release(self, call: Call) -> object:
        return {"version": self._about.version, "commitId": ""}

    async def contexts(self, call: Call) -> object:
        offset, limit = call.query.page()
        found = await self._registry.look(lambda state: views.contexts(state, call.sees))
        return views.page(found, offset, limit)

    # -- subjects ---------------------------------------------------------------------------------

    async def subjects(self, call: Call) -> object:
        query = call.query
        offset, limit = query.page()
        listed = partial(
            views.among,
            sees=call.sees,
            prefix=_prefix(query),
            deleted=query.flag("deleted"),
            only=query.flag("deletedOnly"),
        )
        names = await self._registry.look(lambda state: list(state.subjects))
        found = []
        for start in range(0, len(names), SUBJECTS_A_TURN):
            some = names[start : start + SUBJECTS_A_TURN]
            found.append(sorted(await self._registry.look(partial(_of, listed, some))))
            await asyncio.sleep(0)
        return views.page(await merged(found), offset, limit)

    async def register(self, call: Call) -> object:
        subject = call.subject(Action.WRITE)
        posted = bodies.posted(call.request)
        if posted.id is not None:
            need_all(call.caller, call.api)
        version = await self._registry.register(
            subject,
            posted.schema,
            normalize=call.query.flag("normalize"),
            number=posted.id,
            version=posted.version,
        )
        return await self._shown(call, version)

    async def look_up(self, call: Call) -> object:
        subject = call.subject(Action.READ)
        query = call.query
        found = await self._registry.look_up(
            subject,
            bodies.posted(call.request).schema,
            normalize=query.flag("normalize"),
            deleted=query.flag("deleted"),
        )
        return await self._shown(call, found)

    async def delete_subject(self, call: Call) -> object:
        subject = call.subject(Action.DELETE)
        request = DeleteSubject(subject, permanent=call.query.flag("permanent"))
        return list(await self._registry.delete(request))

    async def versions(self, call: Call) -> object:
        subject = call.subject(Action.READ)
        query = call.query
        offset, limit = query.page()
        only = query.flag("deletedOnly")
        deleted = query.flag("deleted") or only
        found = await self._registry.look(
            lambda state: views.existing(state, subject, deleted=deleted)
        )
        numbers = [one.version for one in found if one.deleted or not only]
        return views.page(numbers, offset, limit)

    async def version(self, call: Call) -> object:
        return await self._shown(call, await self._version(call))

    async def version_schema(self, call: Call) -> object:
        shown = await self._shown(call, await self._version(call))
        return Raw(shown["schema"])

    async def delete_version(self, call: Call) -> object:
        subject = call.subject(Action.DELETE)
        request = DeleteVersion(subject, call.version, permanent=call.query.flag("permanent"))
        (version,) = await self._registry.delete(request)
        return version

    async def referenced_by(self, call: Call) -> object:
        version = await self._version(call)
        query = call.query
        offset, limit = query.page()
        found = await self._registry.look(
            lambda state: views.referenced_by(
                state, call.sees, version.place, deleted=query.flag("deleted")
            )
        )
        return views.page(found, offset, limit)

    async def metadata(self, call: Call) -> object:
        subject = call.subject(Action.READ)
        query = call.query
        properties = dict(zip(query.texts("key"), query.texts("value"), strict=False))
        found = await self._registry.look(
            lambda state: views.with_properties(
                state, subject, properties, deleted=query.flag("deleted")
            )
        )
        return await self._shown(call, found)

    async def _version(self, call: Call) -> Version:
        subject = call.subject(Action.READ)
        number, deleted = call.version, call.query.flag("deleted")
        return await self._registry.look(
            lambda state: views.version(state, subject, number, deleted=deleted)
        )

    # -- schemas ----------------------------------------------------------------------------------

    async def schemas(self, call: Call) -> object:
        query = call.query
        offset, limit = query.page()
        found = await self._registry.look(
            lambda state: views.page(
                views.listing(
                    state,
                    call.sees,
                    prefix=_prefix(query),
                    deleted=query.flag("deleted"),
                    latest_only=query.flag("latestOnly"),
                ),
                offset,
                limit,
            )
        )
        return [views.version_json(one) for one in found]

    async def by_id(self, call: Call) -> object:
        version = (await self._with_id(call))[0]
        return await self._schema_shown(call, version)

    async def text_by_id(self, call: Call) -> object:
        version = (await self._with_id(call))[0]
        return Raw((await self._schema_shown(call, version))["schema"])

    async def subjects_of_id(self, call: Call) -> object:
        deleted = call.query.flag("deleted")
        found = await self._with_id(call)
        names = sorted({one.subject for one in found if deleted or not one.deleted})
        return views.page(names, *call.query.page())

    async def versions_of_id(self, call: Call) -> object:
        deleted = call.query.flag("deleted")
        found = [one for one in await self._with_id(call) if deleted or not one.deleted]
        shown = [{"subject": one.subject, "version": one.version} for one in found]
        return views.page(shown, *call.query.page())

    async def by_guid(self, call: Call) -> object:
        version = (await self._with_guid(call))[0]
        return await self._schema_shown(call, version)

    async def ids_of_guid(self, call: Call) -> object:
        found = {(context_of(one.subject), one.id) for one in await self._with_guid(call)}
        return [{"context": context, "id": number} for context, number in sorted(found)]

    async def _with_id(self, call: Call) -> list[Version]:
        number = bodies.schema_id(call.request.parameters["id"])
        context = context_of(call.query.text("subject"))
        return await self._registry.look(
            lambda state: views.by_id(state, call.sees, number, context=context)
        )

    async def _with_guid(self, call: Call) -> list[Version]:
        guid = call.request.parameters["guid"]
        return await self._registry.look(lambda state: views.by_guid(state, call.sees, guid))

    async def _shown(self, call: Call, version: Version) -> dict[str, Any]:
        return await self._formatted(call, version, views.version_json(version))

    async def _schema_shown(self, call: Call, version: Version) -> dict[str, Any]:
        shown = {"guid": version.guid, **views.schema_json(version.schema)}
        return await self._formatted(call, version, shown)

    async def _formatted(
        self, call: Call, version: Version, shown: dict[str, Any]
    ) -> dict[str, Any]:
        if call.query.text("format") == "serialized":
            shown["schema"] = await self._registry.serialized(version)
        return shown

    # -- compatibility, levels and modes ----------------------------------------------------------

    async def compatibility(self, call: Call) -> object:
        return await self._compared(call, call.version, every=False)

    async def compatibility_with_all(self, call: Call) -> object:
        return await self._compared(call, None, every=True)

    async def _compared(self, call: Call, number: int | None, *, every: bool) -> object:
        subject = call.subject(Action.READ)
        schema = bodies.posted(call.request).schema
        differences = await self._registry.compare(subject, schema, number, every=every)
        answer: dict[str, Any] = {"is_compatible": not differences}
        if call.query.flag("verbose"):
            answer["messages"] = messages(differences)
        return answer

    async def config(self, call: Call) -> object:
        subject = _scope(call, Action.READ)
        inherited = call.query.flag("defaultToGlobal")
        default = self._registry.default
        return await self._registry.look(
            lambda state: views.config(state, subject, default, inherited=inherited)
        )

    async def set_config(self, call: Call) -> object:
        subject = _scope(call, Action.WRITE)
        values = bodies.settings(call.request)
        await self._registry.set(SetConfig(subject, values))
        told = {name: value for name, value in values.items() if name != COMPATIBILITY}
        if COMPATIBILITY in values:
            told["compatibility"] = values[COMPATIBILITY]
        return told

    async def delete_config(self, call: Call) -> object:
        before = await self._registry.set(SetConfig(_scope(call, Action.WRITE), None))
        return {COMPATIBILITY: self._registry.default.value, **(before or {})}

    async def mode(self, call: Call) -> object:
        subject = _scope(call, Action.READ)
        inherited = call.query.flag("defaultToGlobal")
        found = await self._registry.look(
            lambda state: views.mode(state, subject, inherited=inherited)
        )
        return {"mode": found}

    async def set_mode(self, call: Call) -> object:
        subject = _scope(call, Action.WRITE)
        mode = bodies.mode(call.request)
        if mode == IMPORT:
            need_all(call.caller, call.api)
        await self._registry.set(SetMode(subject, mode, force=call.query.flag("force")))
        return {"mode": mode}

    async def delete_mode(self, call: Call) -> object:
        return {"mode": await self._registry.set(SetMode(_scope(call, Action.WRITE), None))}


class Raw(str):
    """A text that is an answer as it stands: a schema."""

    __slots__ = ()


def _scope(call: Call, action: Action) -> str | None:
    """The subject or context of the path; None is all of them."""
    if "subject" in call.request.parameters:
        return call.subject(action, or_context=True)
    if action is not Action.READ:
        need_all(call.caller, call.api)
    return None


def _prefix(query: bodies.Query) -> str:
    """Other registries write the names of all contexts as `:*:`."""
    return query.text("subjectPrefix").removeprefix(":*:")


Route = Callable[[Api, Call], Coroutine[Any, Any, object]]

ROUTES: Final[dict[str, Route]] = {
    "GET /": Api.root,
    "GET /schemas/types": Api.types,
    "GET /v1/metadata/id": Api.cluster,
    "GET /v1/metadata/version": Api.release,
    "GET /contexts": Api.contexts,
    "GET /subjects": Api.subjects,
    "POST /subjects/{subject}": Api.look_up,
    "DELETE /subjects/{subject}": Api.delete_subject,
    "GET /subjects/{subject}/versions": Api.versions,
    "POST /subjects/{subject}/versions": Api.register,
    "GET /subjects/{subject}/versions/{version}": Api.version,
    "DELETE /subjects/{subject}/versions/{version}": Api.delete_version,
    "GET /subjects/{subject}/versions/{version}/schema": Api.version_schema,
    "GET /subjects/{subject}/versions/{version}/referencedby": Api.referenced_by,
    "GET /subjects/{subject}/metadata": Api.metadata,
    "GET /schemas": Api.schemas,
    "GET /schemas/ids/{id}": Api.by_id,
    "GET /schemas/ids/{id}/schema": Api.text_by_id,
    "GET /schemas/ids/{id}/subjects": Api.subjects_of_id,
    "GET /schemas/ids/{id}/versions": Api.versions_of_id,
    "GET /schemas/guids/{guid}": Api.by_guid,
    "GET /schemas/guids/{guid}/ids": Api.ids_of_guid,
    "POST /compatibility/subjects/{subject}/versions": Api.compatibility_with_all,
    "POST /compatibility/subjects/{subject}/versions/{version}": Api.compatibility,
    "GET /config": Api.config,
    "PUT /config": Api.set_config,
    "DELETE /config": Api.delete_config,
    "GET /config/{subject}": Api.config,
    "PUT /config/{subject}": Api.set_config,
    "DELETE /config/{subject}": Api.delete_config,
    "GET /mode": Api.mode,
    "PUT /mode": Api.set_mode,
    "DELETE /mode": Api.delete_mode,
    "GET /mode/{subject}": Api.mode,
    "PUT /mode/{subject}": Api.set_mode,
    "DELETE /mode/{subject}": Api.delete_mode,
}
CHANGES: Final = frozenset(
    {"register", "delete_subject", "delete_version", "set_config", "delete_config"}
    | {"set_mode", "delete_mode"}
)
"""Functions that write; the audit log tells them, and another node's leader decides them."""


def _of(listed: Callable[..., list[str]], names: list[str], state: State) -> list[str]:
    return listed(state, names)


async def merged(parts: list[list[str]]) -> list[str]:
    """Sorted lists as one, in turns: two sorted lists are merged in one pass over them."""
    while len(parts) > 1:
        following = []
        for at in range(0, len(parts), 2):
            following.append(sorted(chain.from_iterable(parts[at : at + 2])))
            await asyncio.sleep(0)
        parts = following
    return parts[0] if parts else []


async def _stays_here(request: Request, caller: Caller) -> Answer | None:
    return None


def routes_of(
    registry: Registry, identify: Identify, about: About, pass_on: PassOn = _stays_here
) -> Routes:
    """The whole API."""
    api = Api(registry, about)
    return Routes(
        {
            name: _handler(partial(route, api), route, identify, pass_on)
            for name, route in ROUTES.items()
        }
    )


def _handler(
    route: Callable[[Call], Coroutine[Any, Any, object]],
    named: Route,
    identify: Identify,
    pass_on: PassOn,
) -> Handler:
    name: str = named.__name__
    changes = name in CHANGES

    async def handle(request: Request) -> Answer:
        caller = await identify(request)
        return await caller.answer(request, partial(serve, caller))

    async def serve(caller: Caller, request: Request) -> Answer:
        try:
            elsewhere = await pass_on(request, caller)
        except RegistryError as error:
            return failure(request, error)
        if elsewhere is not None:
            return elsewhere
        call = Call(request, caller, f"registry.{name}")
        outcome = "failed"
        try:
            answer = _answer(request, 200, await route(call))
            outcome = "done"
        except LedElsewhere as error:
            # As with the first schema of all, if the topic that is made for it is another node's.
            outcome = "passed on"
            try:
                return await pass_on(request, caller) or failure(request, error)
            except RegistryError as refused:
                return failure(request, refused)
        except RegistryError as error:
            outcome = error.code.name
            return failure(request, error)
        finally:
            if changes:
                caller.changed(call.api, request.parameters.get("subject", ""), outcome)
        return answer

    return handle


def failure(request: Request | None, error: RegistryError) -> Answer:
    return _answer(request, error.code.status, {"error_code": error.code, "message": error.message})


def refusal(refused: Refused) -> Answer:
    """What the server itself refuses, as the API tells it."""
    message = str(refused)
    if refused.answer.status == 404:
        message = (
            "HTTP 404: the registry has no such path; exporters, keys of encryption and "
            "associations are not built"
        )
    body = {"error_code": refused.answer.status, "message": message}
    told = _answer(None, refused.answer.status, body)
    return Answer(told.status, told.body, told.content_type, refused.answer.headers)


def _answer(request: Request | None, status: int, value: object) -> Answer:
    accepted = "" if request is None else request.headers.get("accept", "")
    kind = next((one for one in MEDIA_TYPES if one in accepted), V1)
    text = value if isinstance(value, Raw) else json.dumps(value, ensure_ascii=False)
    return Answer(status, text.encode(), kind)
