"""Two nodes on one file do what a pure fold of the same changes does, whatever is reopened."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.metadata.changes.apply import Change, Decision, apply
from ottla.metadata.changes.nodes import SetClusterId
from ottla.metadata.errors import ChangeRefused, MetadataError
from ottla.metadata.image import MetadataImage
from ottla.metadata.stores.sqlite import SqliteMetadataStore
from tests.support.metadata_changes import changes

if TYPE_CHECKING:
    from collections.abc import Sequence

_nodes = st.integers(0, 1)
_proposals = st.lists(changes(), max_size=3)


class TwoNodesOneFile(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.model = apply(MetadataImage(), SetClusterId("the cluster"))
        self.history = {self.model.version: self.model}
        self.stores = [self._open(), self._open()]

    def _open(self) -> SqliteMetadataStore:
        # Snapshots so often that nodes fall behind them and that a proposal can span two.
        return SqliteMetadataStore(
            Path(self.directory.name, "metadata.db"), cluster_id="the cluster", snapshot_interval=2
        )

    def _fold(self, proposal: list[Change]) -> type[ChangeRefused] | None:
        image = self.model
        passed = {}
        try:
            for change in proposal:
                image = apply(image, change)
                passed[image.version] = image
        except ChangeRefused as refused:
            return type(refused)
        self.model = image
        self.history |= passed
        return None

    @rule(node=_nodes, proposal=_proposals)
    def propose(self, node: int, proposal: list[Change]) -> None:
        self._try(node, proposal, self._fold(proposal))

    @rule(node=_nodes, proposal=_proposals)
    def decide(self, node: int, proposal: list[Change]) -> None:
        """A decision sees what the other node changed, and its changes meet the same image."""
        newest = self.model

        def decision(image: MetadataImage) -> list[Change]:
            assert image == newest
            return proposal

        self._try(node, [decision], self._fold(proposal))

    def _try(
        self,
        node: int,
        proposal: Sequence[Change | Decision],
        error: type[MetadataError] | None,
    ) -> None:
        store = self.stores[node]
        if error is None:
            assert store.propose(*proposal) == self.model
        else:
            with pytest.raises(error):
                store.propose(*proposal)
        assert store.snapshot() == self.model

    @rule(node=_nodes)
    def poll(self, node: int) -> None:
        assert self.stores[node].poll() == self.model

    @rule(node=_nodes)
    def reopen(self, node: int) -> None:
        self.stores[node].close()
        self.stores[node] = self._open()
        assert self.stores[node].snapshot() == self.model

    @invariant()
    def images_are_of_the_history(self) -> None:
        for store in self.stores:
            assert store.snapshot() == self.history[store.snapshot().version]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.directory.cleanup()


TestTwoNodesOneFile = TwoNodesOneFile.TestCase
TestTwoNodesOneFile.settings = settings(stateful_step_count=25)
