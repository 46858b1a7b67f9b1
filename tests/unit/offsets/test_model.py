"""Stores against a dictionary, over random operations."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from ottla.offsets import (
    UNSET,
    Durability,
    Lance,
    MemoryOffsetStore,
    OffsetConflict,
    OffsetKey,
    OffsetRegression,
    SyncLockFileOffsetStore,
    SyncSqliteOffsetStore,
)
from tests.support.sizes import SOAK, examples

if TYPE_CHECKING:
    from ottla.offsets.protocol import SyncOffsetStore
    from ottla.offsets.types import Expected

KEYS = [OffsetKey(str(consumer), str(stream)) for consumer in (1, 2) for stream in (1, 2, 3)]
keys = st.sampled_from(KEYS)
positions = st.integers(0, 5)
expectations = st.sampled_from([UNSET, UNSET, None, *range(6)])


class StoreMachine(RuleBasedStateMachine):
    """The model is the dictionary; `other` is a second, already open store on the same data."""

    kind = ""

    @initialize()
    def open(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="ottla-offsets-")
        self.model: dict[OffsetKey, int] = {}
        self.store = self._open()
        self.other = self.store if self.kind == "memory" else self._open()

    def _open(self) -> SyncOffsetStore:
        path = Path(self.directory.name)
        if self.kind == "memory":
            return MemoryOffsetStore().sync
        if self.kind == "sqlite":
            return SyncSqliteOffsetStore(path / "db")
        layout = Lance("x") if self.kind == "lance" else None
        return SyncLockFileOffsetStore(path, layout, durability=Durability.RENAME)

    def _refusal(
        self, key: OffsetKey, position: int, expected: Expected, rewind: bool
    ) -> type[Exception] | None:
        stored = self.model.get(key)
        if expected is not UNSET and expected != stored:
            return OffsetConflict
        if stored is not None and position < stored and not rewind:
            return OffsetRegression
        return None

    @rule(key=keys, position=positions, expected=expectations, rewind=st.booleans())
    def save(self, key: OffsetKey, position: int, expected: Expected, rewind: bool) -> None:
        refusal = self._refusal(key, position, expected, rewind)
        if refusal is not None:
            with pytest.raises(refusal):
                self.store.save(key, position, expected=expected, rewind=rewind)
            return
        info = self.store.save(key, position, expected=expected, rewind=rewind)
        previous = self.model.get(key)
        assert (info.previous, info.changed) == (previous, previous != position)
        self.model[key] = position

    @rule(items=st.dictionaries(keys, positions), rewind=st.booleans())
    def save_many(self, items: dict[OffsetKey, int], rewind: bool) -> None:
        refusals = [self._refusal(key, items[key], UNSET, rewind) for key in items]
        if any(refusals):
            with pytest.raises(OffsetRegression):
                self.store.save_many(items, rewind=rewind)
            return
        infos = self.store.save_many(items, rewind=rewind)
        assert [(info.key, info.previous) for info in infos] == [
            (key, self.model.get(key)) for key in items
        ]
        self.model.update(items)

    @rule(key=keys)
    def delete(self, key: OffsetKey) -> None:
        assert self.other.delete(key) == (self.model.pop(key, None) is not None)

    @rule()
    def change_over(self) -> None:
        self.store, self.other = self.other, self.store

    @rule()
    def reopen(self) -> None:
        if self.kind != "memory":
            self.store.close()
            self.store = self._open()

    @rule(key=keys)
    def load(self, key: OffsetKey) -> None:
        assert self.other.load(key) == self.model.get(key)

    @invariant()
    def both_list_the_model(self) -> None:
        if hasattr(self, "model"):
            assert self.store.list_all() == self.model
            assert self.other.list_all("1") == {
                key: position for key, position in self.model.items() if key.consumer == "1"
            }

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.store.close()
            self.other.close()
            self.directory.cleanup()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["memory", "v1", "lance", "sqlite"])
def test_a_store_is_a_dictionary_with_rules(kind: str) -> None:
    machine = type(f"{kind}Machine", (StoreMachine,), {"kind": kind})
    count = 2_000 if SOAK else examples(20)
    run_state_machine_as_test(machine, settings=settings(max_examples=count))
