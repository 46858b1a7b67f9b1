"""Registering, looking up and comparing schemas: what is asynchronous around the machine.

Schemas are parsed and compared by `Parser`, a process of its own. What it was told about the state
may be old when it answers, so the machine looks again (`Check`), and this asks again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ottla.registry import views
from ottla.registry.errors import Code, RegistryError
from ottla.registry.requests import Check, Deleted, Done, Look, Register, Registered
from ottla.registry.state import NORMALIZE
from ottla.schemas.compatibility import Level
from ottla.schemas.model import InvalidSchema, Kind, SchemaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ottla.registry.requests import (
        DeleteSubject,
        DeleteVersion,
        Request,
        Response,
        SetConfig,
        SetMode,
    )
    from ottla.registry.state import State, Version
    from ottla.schemas.compatibility import Difference
    from ottla.schemas.model import Parsed, Schema

T = TypeVar("T")

ROUNDS: Final = 20
"""Times that a schema is compared anew because its subject has changed meanwhile."""
MAX_PARSED: Final = 128
MAX_KEPT: Final = 64 * 1024
"""Characters of a schema whose parsed form is kept: with the number above, some 32 MiB at most."""


class Parser(Protocol):
    """`schemas.parsing` and `schemas.compatibility`, elsewhere."""

    async def parse(self, schema: Schema, resolved: Mapping[str, str]) -> Parsed: ...

    async def check(
        self, kind: Kind, level: Level, new: Parsed, existing: Sequence[Parsed]
    ) -> list[Difference]: ...


class Registry:
    """`ask` gives a request to the machine; its answer comes when it is committed."""

    def __init__(
        self,
        ask: Callable[[Request], Awaitable[Response]],
        parser: Parser,
        default: Level = Level.BACKWARD,
    ) -> None:
        self._ask = ask
        self._parser = parser
        self.default = default
        self._parsed: OrderedDict[tuple[str, str], Parsed] = OrderedDict()

    async def look(self, view: Callable[[State], T]) -> T:
        """What a pure function reads of the state."""
        answer = await self._answer(Look(view))
        assert isinstance(answer, Done)
        value: T = answer.value
        return value

    async def delete(self, request: DeleteVersion | DeleteSubject) -> tuple[int, ...]:
        """The versions that are gone."""
        answer = await self._answer(request)
        assert isinstance(answer, Deleted)
        return answer.versions

    async def set(self, request: SetConfig | SetMode) -> Any:
        answer = await self._answer(request)
        assert isinstance(answer, Done)
        return answer.value

    # -- registering and looking up ---------------------------------------------------------------

    async def register(
        self,
        subject: str,
        schema: Schema,
        *,
        normalize: bool = False,
        number: int | None = None,
        version: int | None = None,
    ) -> Version:
        """The version of the subject that has this schema; a new one if there is none."""
        if number is None and (
            known := await self.look(partial(_same, subject, schema, deleted=False))
        ):
            return known  # as it stands: nothing to parse
        parsed = await self.parse(subject, schema)
        normalize = normalize or await self._normalizes(subject)
        schema = await self._stored(subject, schema, parsed, normalize=normalize)
        passed: Check | None = None
        for _ in range(ROUNDS):
            answer = await self._answer(Register(subject, schema, number, version, passed))
            if isinstance(answer, Registered):
                return answer.version
            assert isinstance(answer, Check)
            differences = await self._differences(parsed, answer)
            if differences:
                raise RegistryError(
                    Code.INCOMPATIBLE,
                    f"the schema is not compatible with {_shown(answer)} at level "
                    f"{answer.level}: {'; '.join(messages(differences))}",
                )
            passed = answer
        raise RegistryError(Code.TIMEOUT, f"{subject} changes all the time; try again")

    async def look_up(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> Version:
        """The version of the subject that has this schema."""
        await self.look(lambda state: views.existing(state, subject, deleted=deleted))
        found = await self.look(partial(_same, subject, schema, deleted=deleted))
        if found is None:
            parsed = await self.parse(subject, schema)
            normalize = normalize or await self._normalizes(subject)
            stored = await self._stored(
                subject, schema, parsed, normalize=normalize, deleted=deleted
            )
            found = await self.look(partial(_same, subject, stored, deleted=deleted))
        if found is None:
            raise RegistryError(Code.NO_SCHEMA, f"{subject} has no such schema")
        return found

    async def compare(
        self, subject: str, schema: Schema, number: int | None, *, every: bool = False
    ) -> list[Difference]:
        """Why a schema may not follow a version, or (`every`) those that its level asks for."""

        def against(state: State) -> Check:
            if every:
                return views.must_fit(state, subject, schema, self.default)
            found = views.version(state, subject, number)
            return Check(state.level(subject, self.default), (found,))

        check = await self.look(against)
        return await self._differences(await self.parse(subject, schema), check)

    async def serialized(self, version: Version) -> str:
        """The text of a Protobuf schema as base64 of its descriptor; of others, the text."""
        if version.schema.kind is not Kind.PROTOBUF:
            return version.schema.text
        parsed = await self.parse(version.subject, version.schema)
        return await asyncio.to_thread(_last_file, parsed.encoded)

    # -- the parser -------------------------------------------------------------------------------

    async def parse(self, subject: str, schema: Schema) -> Parsed:
        resolved = await self.look(lambda state: views.resolved(state, subject, schema))
        key = schema.kind.value + schema.text, repr(sorted(resolved.items()))
        known = self._parsed.get(key)
        if known is not None:
            self._parsed.move_to_end(key)
            return known
        try:
            parsed = await self._parser.parse(schema, resolved)
        except InvalidSchema as error:
            raise RegistryError(Code.INVALID_SCHEMA, f"invalid schema: {error}") from error
        except SchemaError as error:
            raise RegistryError(Code.STORE, str(error)) from error
        if sum(map(len, key)) <= MAX_KEPT:
            self._parsed[key] = parsed
            if len(self._parsed) > MAX_PARSED:
                self._parsed.popitem(last=False)
        return parsed

    async def _differences(self, new: Parsed, check: Check) -> list[Difference]:
        existing = [await self.parse(one.subject, one.schema) for one in check.against]
        try:
            return await self._parser.check(new.kind, check.level, new, existing)
        except InvalidSchema as error:
            raise RegistryError(Code.INVALID_SCHEMA, str(error)) from error
        except SchemaError as error:
            raise RegistryError(Code.STORE, str(error)) from error

    async def _normalizes(self, subject: str) -> bool:
        return bool(await self.look(lambda state: state.config(subject, NORMALIZE)))

    async def _stored(
        self,
        subject: str,
        schema: Schema,
        parsed: Parsed,
        *,
        normalize: bool,
        deleted: bool = False,
    ) -> Schema:
        """As it is kept; if it is to be normalised, as the subject has it in another form."""
        if not normalize:
            return replace(schema, text=parsed.canonical)
        normal = replace(schema, text=parsed.normalized)
        versions = await self.look(lambda state: state.versions(subject, deleted=deleted))
        for version in reversed(versions):
            if replace(version.schema, text="") != replace(schema, text=""):
                continue
            other = await self.parse(subject, version.schema)
            if other.normalized == parsed.normalized:
                return version.schema
        return normal

    async def _answer(self, request: Request) -> Response:
        answer = await self._ask(request)
        if isinstance(answer, RegistryError):
            raise answer
        return answer


def _last_file(descriptors: bytes) -> str:
    """The last file of a descriptor set, as base64; its library is loaded here, in a thread."""
    from base64 import b64encode

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet.FromString(descriptors).file
    return b64encode(files[-1].SerializeToString()).decode()


def messages(differences: Sequence[Difference]) -> list[str]:
    return [f"{one.path}: {one.message}" if one.path else one.message for one in differences]


def _same(subject: str, schema: Schema, state: State, *, deleted: bool) -> Version | None:
    return views.same(state, subject, schema, deleted=deleted)


def _shown(check: Check) -> str:
    numbers = [one.version for one in check.against]
    first = f"version {numbers[-1]}"
    return f"{check.against[-1].subject} {first}" + (
        " and earlier ones" if len(numbers) > 1 else ""
    )
