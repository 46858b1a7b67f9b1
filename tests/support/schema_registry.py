"""The registry's machine driven by hand, and what is to be equal after a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clock import Now
from ottla.registry.errors import Code, RegistryError
from ottla.registry.machine import RegistryMachine
from ottla.registry.requests import Check, Register, Registered, Request, Response
from ottla.schemas.model import Kind, Reference, Schema

if TYPE_CHECKING:
    from ottla.registry.state import State, Version

ResponseT = TypeVar("ResponseT")
NOW = Now(0, 0)


def avro(text: str, *references: Reference, metadata: Any = None) -> Schema:
    return Schema(Kind.AVRO, text, references, metadata)


class Driver:
    """`log` is what the machine has written, as bytes."""

    def __init__(self, log: list[tuple[bytes, bytes | None]] | None = None) -> None:
        self.log = [] if log is None else log
        self.machine = self.replayed()

    @property
    def state(self) -> State:
        return self.machine.state

    def replayed(self, log: list[tuple[bytes, bytes | None]] | None = None) -> RegistryMachine:
        """What a restart at this moment would come up with."""
        machine = RegistryMachine()
        for key, value in self.log if log is None else log:
            machine.replay(key, value)
        machine.loaded(NOW)
        return machine

    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        """The log after compaction, when its tombstones have gone, too."""
        last = {key: at for at, (key, _) in enumerate(self.log)}
        return [
            (key, value)
            for at, (key, value) in enumerate(self.log)
            if last[key] == at and value is not None
        ]

    def answer(self, request: Request) -> Response:
        decision = self.machine.decide(request, 7, NOW)
        self.log += [self.machine.encode(record) for record in decision.records]
        ((token, response),) = decision.replies
        assert token == 7
        return response

    def ask(self, request: Request, kind: type[ResponseT]) -> ResponseT:
        response = self.answer(request)
        assert isinstance(response, kind), response
        return response

    def refused(self, request: Request, code: Code) -> str:
        before = len(self.log)
        error = self.ask(request, RegistryError)
        assert error.code is code, (error.code, error.message)
        assert len(self.log) == before
        return error.message

    def register(
        self,
        subject: str,
        schema: Schema | str,
        number: int | None = None,
        version: int | None = None,
    ) -> Version:
        """As if every schema were compatible with every other."""
        schema = avro(schema) if isinstance(schema, str) else schema
        answer = self.answer(Register(subject, schema, number, version))
        if isinstance(answer, Check):
            answer = self.answer(Register(subject, schema, number, version, answer))
        assert isinstance(answer, Registered), answer
        return answer.version


def content(state: State) -> dict[str, Any]:
    """All of a state that must come back."""
    return {
        "subjects": {
            name: (versions.by_number, versions.highest)
            for name, versions in state.subjects.items()
            if versions.highest
        },
        "ids": {
            context: ({number: set(ids.holders[number]) for number in ids.holders}, ids.highest)
            for context, ids in state.contexts.items()
            if ids.highest
        },
        "entities": {
            context: {one: set(numbers) for one, numbers in ids.by_entity.items()}
            for context, ids in state.contexts.items()
            if ids.by_entity
        },
        "configs": state.configs,
        "modes": state.modes,
        "referrers": {place: set(others) for place, others in state.referrers.items()},
        "guids": {guid: set(ids) for guid, ids in state.guids.items()},
    }
