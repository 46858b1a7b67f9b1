"""The registry under any order of requests, with restarts and compaction between them.

Held at every step: a replay of the whole log, and one of the compacted log without its tombstones,
equal the state. Held over the whole run: no id and no version is given to two schemas.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.registry.errors import RegistryError
from ottla.registry.names import context_of
from ottla.registry.records import guid_of
from ottla.registry.requests import (
    Check,
    DeleteSubject,
    DeleteVersion,
    Register,
    Registered,
    SetConfig,
    SetMode,
)
from ottla.registry.state import COMPATIBILITY, MODES
from ottla.schemas.compatibility import Level
from ottla.schemas.model import Reference
from tests.support.schema_registry import Driver, avro, content

SUBJECTS = ["a", "b", ":.c:a"]
FOREIGN = b'{"keytype": "SCHEMA", "magic": 1, "subject": "a", "version": 1}'
FOREIGN_VALUE = b'{"subject": "a", "version": 1, "id": 1, "schema": "\\"t0\\"", "deleted": false}'

subjects = st.sampled_from(SUBJECTS)
scopes = st.sampled_from([None, ":.c:", *SUBJECTS])
versions = st.integers(1, 4)
schemas = st.builds(
    lambda text, references: avro(f'"t{text}"', *references),
    st.integers(0, 4),
    st.lists(st.builds(Reference, st.just("x"), subjects, versions), max_size=1),
)


class Registries(RuleBasedStateMachine):
    @initialize(foreign=st.booleans())
    def start(self, *, foreign: bool) -> None:
        self.driver = Driver([(FOREIGN, FOREIGN_VALUE)] if foreign else None)
        self.ids: dict[tuple[str, int], str] = {}
        self.versions: dict[tuple[str, int], str] = {}
        self._note()

    def _note(self) -> None:
        for subject in self.driver.state.subjects:
            for one in self.driver.state.versions(subject, deleted=True):
                name = context_of(subject), one.id
                assert self.ids.setdefault(name, one.entity) == one.entity
                assert self.versions.setdefault(one.place, one.entity) == one.entity

    @rule(subject=subjects, schema=schemas, tries=st.integers(1, 2))
    def register(self, subject: str, schema: Any, tries: int) -> None:
        given: Check | None = None
        for _ in range(tries):
            answer = self.driver.answer(Register(subject, schema, passed=given))
            given = answer if isinstance(answer, Check) else None
            if isinstance(answer, Registered):
                assert answer.version.schema == schema
                assert not answer.version.deleted
        self._note()

    @rule(
        subject=subjects, schema=schemas, number=st.integers(10, 13), version=st.none() | versions
    )
    def bring(self, subject: str, schema: Any, number: int, version: int | None) -> None:
        """In IMPORT mode; numbers that were given before may come again with their own schema."""
        entity = self.ids.get((context_of(subject), number))
        place = subject, version or self.driver.state.highest(subject) + 1
        if entity not in (None, guid_of(schema)) or place in self.versions:
            return
        self.driver.answer(Register(subject, schema, number, version))
        self._note()

    @rule(subject=subjects, version=st.none() | versions, permanent=st.booleans())
    def delete_version(self, subject: str, version: int | None, *, permanent: bool) -> None:
        self.driver.answer(DeleteVersion(subject, version, permanent=permanent))

    @rule(subject=subjects, permanent=st.booleans())
    def delete_subject(self, subject: str, *, permanent: bool) -> None:
        answer = self.driver.answer(DeleteSubject(subject, permanent=permanent))
        if not isinstance(answer, RegistryError):
            assert not self.driver.state.versions(subject, deleted=permanent)

    @rule(scope=scopes, level=st.none() | st.sampled_from(Level))
    def configure(self, scope: str | None, level: Level | None) -> None:
        values = None if level is None else {COMPATIBILITY: level.value}
        self.driver.answer(SetConfig(scope, values))

    @rule(scope=scopes, mode=st.none() | st.sampled_from(MODES), force=st.booleans())
    def set_mode(self, scope: str | None, mode: str | None, *, force: bool) -> None:
        self.driver.answer(SetMode(scope, mode, force=force))

    @rule()
    def restart(self) -> None:
        self.driver = Driver(self.driver.log)

    @rule()
    def compact(self) -> None:
        self.driver = Driver(self.driver.compacted())

    @invariant()
    def a_replay_comes_up_with_the_same(self) -> None:
        expected = content(self.driver.state)
        assert content(self.driver.replayed().state) == expected
        assert content(self.driver.replayed(self.driver.compacted()).state) == expected

    @invariant()
    def references_are_there(self) -> None:
        state = self.driver.state
        for place, others in state.referrers.items():
            live = [one for one in others if not state.version(*one).deleted]  # type: ignore[union-attr]
            found = state.version(*place)
            assert found is not None
            assert not (live and found.deleted)


TestRegistries = Registries.TestCase
TestRegistries.settings = settings(stateful_step_count=30)
