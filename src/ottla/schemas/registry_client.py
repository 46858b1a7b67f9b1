"""A client of a schema registry, Ottla's or any other with Confluent's REST API.

    async with ottla.SchemaRegistry("http://127.0.0.1:8081") as registry:
        registered = await registry.register("orders-value", '"string"', kind="avro")
        schema = await registry.by_id(registered.id)

- Requests are made in threads, so that the event loop goes on; connections are kept and used again.
- 429 and errors of the server (5xx) are tried again, with pauses, until `timeout` has passed. What
  the registry refuses is a `RegistryRefused` with its code; a registry that does not answer, or
  with something else than JSON, is a `RegistryUnreachable`.
- A redirect is not followed: it could send a password elsewhere.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from urllib.parse import quote, urlencode, urlsplit

from ottla.clock import SYSTEM
from ottla.schemas.model import Kind, Reference, Schema, SchemaError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from ottla.clock import Clock
    from ottla.security.tokens import KeptToken

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MAX_ANSWER: Final = 64 * 1024 * 1024
"""A list of all schemas may be long; more is no answer of a registry."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
MAX_IDLE: Final = 4
"""Connections that are kept while nobody uses them."""
SHOWN: Final = 200
"""Characters that are shown of an answer that is no answer."""


class RegistryRefused(SchemaError):
    """The registry answered with an error; `code` is its error code, such as 40401."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} (error code {self.code})"


class RegistryUnreachable(SchemaError):
    """No registry answers at the URL."""


class Protected(Protocol):
    """What is used of `ottla.Security`: who asks, and whom to trust."""

    @property
    def sasl_username(self) -> str | None: ...
    @property
    def sasl_password(self) -> str | None: ...
    def bearer(self) -> tuple[str, float] | None:
        """A token and when it expires, in seconds since 1970; None without one. Blocks."""

    def context(self) -> ssl.SSLContext:
        """For TLS, with the client's certificate if there is one. Reads files."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a subject has it."""

    subject: str
    version: int
    id: int
    schema: Schema
    guid: str | None = None


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Whether a schema may follow others, and why not."""

    is_compatible: bool
    messages: tuple[str, ...] = ()


class BlockingRegistry:
    """The requests, one after the other in the thread that makes them; may be shared by threads."""

    def __init__(
        self,
        url: str,
        *,
        security: Protected | None = None,
        timeout: float = 10.0,
        clock: Clock = SYSTEM,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise SchemaError(f"{url!r:.200} is no URL of a registry: give http://HOST:PORT")
        self.url = url.rstrip("/")
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/")
        self._timeout = timeout
        self._security = security
        self._context: ssl.SSLContext | None = None
        self._headers = {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE}
        user = None if security is None else security.sasl_username
        if security is not None and user is not None:
            basic = b64encode(f"{user}:{security.sasl_password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {basic}"
        self._token: KeptToken | None = None
        if security is not None:
            from ottla.security.tokens import KeptToken

            self._token = KeptToken(clock)
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    def request(
        self, method: str, path: str, query: Mapping[str, object] | None = None, body: Any = None
    ) -> Any:
        """The JSON of the answer; waits."""
        deadline = time.monotonic() + self._timeout
        target = self._base + path
        given = {name: _word(value) for name, value in (query or {}).items() if value is not None}
        if given:
            target += "?" + urlencode(given)
        data = None if body is None else json.dumps(body).encode()
        pause = FIRST_PAUSE
        while True:
            try:
                status, answer = self._exchange(method, target, data, self._authorized())
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
                failure: SchemaError = RegistryUnreachable(
                    f"no schema registry answers at {self.url}: {why}"
                )
                if isinstance(error, http.client.IncompleteRead):
                    failure = RegistryUnreachable(f"{self.url} sent half an answer")
            else:
                found = _parsed(answer)
                if status < 300 and found is not None:
                    return found.value
                failure = _failure(self.url, status, found, answer)
                if status == 401:
                    self._forget_token()
                if status != 429 and status < 500:
                    raise failure
            if time.monotonic() + pause > deadline:
                raise failure
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _authorized(self) -> Mapping[str, str]:
        """The headers, with a token that has some of its life left."""
        token = self._token
        if token is None or self._security is None:
            return self._headers
        value = token.value
        if value is None:
            found = self._security.bearer()
            if found is None:
                self._token = None
                return self._headers
            from ottla.security.errors import SecurityError

            value, expires_at = found
            try:
                token.keep(value, expires_at)
            except SecurityError as error:
                raise SchemaError(f"cannot ask {self.url}: {error}") from None
        return {**self._headers, "Authorization": f"Bearer {value}"}

    def _forget_token(self) -> None:
        """The registry did not take it: the next request has another one."""
        token = self._token
        if token is not None:
            token.forget()

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection, is_new = self._connection()
        try:
            try:
                connection.request(method, target, data, headers)
                response = connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError):
                if is_new:
                    raise
                # It was closed while nobody used it. Nothing of the request has been answered.
                connection.close()
                connection.request(method, target, data, headers)
                response = connection.getresponse()
            with response:
                answer = response.read(MAX_ANSWER + 1)
            if len(answer) > MAX_ANSWER:
                raise http.client.HTTPException(f"an answer of more than {MAX_ANSWER >> 20} MiB")
            if response.length:
                raise http.client.IncompleteRead(answer, response.length)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return response.status, answer

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._closed:
                raise SchemaError("this client is closed")
            if self._idle:
                return self._idle.pop(), False
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout), True
        if self._context is None:
            if self._security is None:
                from ottla.security.contexts import TlsSettings, client_context

                self._context = client_context(TlsSettings())
            else:
                self._context = self._security.context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout, context=self._context
        ), True

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()


class SchemaRegistry:
    """`security` says who asks (user and password, token or certificate) and whom to trust.

    It is the value that other clients take. A `token` function is called in a thread, with an
    event loop of its own.
    """

    def __init__(
        self, url: str, *, security: Protected | None = None, timeout: float = 10.0
    ) -> None:
        self._blocking = BlockingRegistry(url, security=security, timeout=timeout)

    @property
    def url(self) -> str:
        return self._blocking.url

    @property
    def blocking(self) -> BlockingRegistry:
        """Internal: the requests themselves, for code that has threads of its own."""
        return self._blocking

    async def register(
        self,
        subject: str,
        schema: str | Schema,
        *,
        kind: str = "avro",
        references: Sequence[Reference] = (),
        normalize: bool = False,
    ) -> RegisteredSchema:
        """Add a schema to a subject; one that it has already is answered as it is."""
        given = _given(schema, kind, references)
        answer = await self._ask(
            "POST", _path("subjects", subject, "versions"), {"normalize": normalize}, _body(given)
        )
        if "version" not in answer:  # older registries tell the id alone
            answer = await self._ask("POST", _path("subjects", subject), None, _body(given))
        return _registered({"schema": given.text, **answer}, subject, given)

    async def look_up(
        self,
        subject: str,
        schema: str | Schema,
        *,
        kind: str = "avro",
        references: Sequence[Reference] = (),
        normalize: bool = False,
    ) -> RegisteredSchema:
        """The version of a subject that has this schema."""
        given = _given(schema, kind, references)
        query = {"normalize": normalize}
        answer = await self._ask("POST", _path("subjects", subject), query, _body(given))
        return _registered(answer, subject, given)

    async def by_id(self, number: int) -> Schema:
        return schema_of(await self._ask("GET", _path("schemas", "ids", str(number))))

    async def by_guid(self, guid: str) -> Schema:
        return schema_of(await self._ask("GET", _path("schemas", "guids", guid)))

    async def latest(self, subject: str) -> RegisteredSchema:
        return await self.version(subject, None)

    async def version(self, subject: str, number: int | None) -> RegisteredSchema:
        """One version; None is the latest."""
        named = "latest" if number is None else str(number)
        answer = await self._ask("GET", _path("subjects", subject, "versions", named))
        return _registered(answer, subject, None)

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        answer = await self._ask(
            "GET", _path("subjects", subject, "versions"), {"deleted": deleted}
        )
        return list(answer)

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        query = {"subjectPrefix": prefix or None, "deleted": deleted}
        return list(await self._ask("GET", "/subjects", query))

    async def check(
        self,
        subject: str,
        schema: str | Schema,
        *,
        kind: str = "avro",
        references: Sequence[Reference] = (),
    ) -> Compatibility:
        """Whether a schema could be registered for a subject."""
        answer = await self._ask(
            "POST",
            _path("compatibility", "subjects", subject, "versions"),
            {"verbose": True},
            _body(_given(schema, kind, references)),
        )
        return Compatibility(bool(answer["is_compatible"]), tuple(answer.get("messages") or ()))

    async def config(self, subject: str | None = None) -> str:
        """The compatibility level that counts for a subject, or for all."""
        query = None if subject is None else {"defaultToGlobal": True}
        answer = await self._ask("GET", _path("config", subject), query)
        return str(answer["compatibilityLevel"])

    async def set_config(self, level: str | None, subject: str | None = None) -> None:
        """Set the level of a subject, or of all; None removes it."""
        if level is None:
            await self._ask("DELETE", _path("config", subject))
        else:
            body = {"compatibility": level.upper()}
            await self._ask("PUT", _path("config", subject), None, body)

    async def mode(self, subject: str | None = None) -> str:
        """The mode that counts for a subject, or for all."""
        query = None if subject is None else {"defaultToGlobal": True}
        return str((await self._ask("GET", _path("mode", subject), query))["mode"])

    async def set_mode(
        self, mode: str | None, subject: str | None = None, *, force: bool = False
    ) -> None:
        """Set the mode of a subject, or of all; None removes it."""
        if mode is None:
            await self._ask("DELETE", _path("mode", subject))
        else:
            body = {"mode": mode.upper()}
            await self._ask("PUT", _path("mode", subject), {"force": force}, body)

    async def delete(
        self, subject: str, version: int | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Delete a version, or the whole subject; `permanent` what is soft-deleted."""
        query = {"permanent": permanent}
        if version is None:
            return list(await self._ask("DELETE", _path("subjects", subject), query))
        path = _path("subjects", subject, "versions", str(version))
        return [int(await self._ask("DELETE", path, query))]

    async def close(self) -> None:
        await asyncio.to_thread(self._blocking.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _ask(
        self, method: str, path: str, query: Mapping[str, object] | None = None, body: Any = None
    ) -> Any:
        return await asyncio.to_thread(self._blocking.request, method, path, query, body)


def schema_of(answer: Mapping[str, Any]) -> Schema:
    """The schema in an answer of a registry."""
    try:
        return Schema(
            Kind(answer.get("schemaType") or Kind.AVRO),
            answer["schema"],
            tuple(
                Reference(one["name"], one["subject"], one["version"])
                for one in answer.get("references") or ()
            ),
            answer.get("metadata"),
            answer.get("ruleSet"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryUnreachable(f"not an answer of a schema registry: {error!r:.200}") from error


def _registered(answer: Mapping[str, Any], subject: str, given: Schema | None) -> RegisteredSchema:
    schema = given if given is not None and "schema" not in answer else schema_of(answer)
    return RegisteredSchema(
        answer.get("subject") or subject,
        answer["version"],
        answer["id"],
        schema,
        answer.get("guid"),
    )


def _given(schema: str | Schema, kind: str, references: Sequence[Reference]) -> Schema:
    if isinstance(schema, Schema):
        return schema
    try:
        return Schema(Kind(kind.upper()), schema, tuple(references))
    except ValueError:
        raise SchemaError(f"kind {kind!r:.40} is none of avro, json and protobuf") from None


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind is not Kind.AVRO:
        body["schemaType"] = schema.kind.value
    if schema.references:
        body["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ]
    if schema.metadata is not None:
        body["metadata"] = schema.metadata
    if schema.rules is not None:
        body["ruleSet"] = schema.rules
    return body


def _path(*parts: str | None) -> str:
    return "".join(f"/{quote(part, safe='')}" for part in parts if part is not None)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class _Json:
    value: Any


def _parsed(answer: bytes) -> _Json | None:
    try:
        return _Json(json.loads(answer))
    except (ValueError, RecursionError):
        return None


def _failure(url: str, status: int, found: _Json | None, answer: bytes) -> SchemaError:
    match None if found is None else found.value:
        case {"error_code": int(code), "message": str(message)}:
            return RegistryRefused(status, code, message)
    shown = answer[:SHOWN].decode(errors="replace")
    return RegistryUnreachable(f"{url} is no schema registry: status {status}, {shown!r}")
