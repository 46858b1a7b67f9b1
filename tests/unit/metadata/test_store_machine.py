"""Two nodes on one file do what a pure fold of the same changes does, whatever is reopened."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.metadata.changes.apply import Change, apply
from ottla.metadata.changes.nodes import AllocateProducerIds, SetClusterId
from ottla.metadata.errors import ChangeRefused, MetadataError, VersionConflict
from ottla.metadata.image import MetadataImage
from ottla.metadata.stores.sqlite import SqliteMetadataStore
from tests.support.metadata_changes import changes

_nodes = st.integers(0, 1)
_proposals = st.lists(changes(), max_size=3)


class TwoNodesOneFile(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.model = apply(MetadataImage(), SetClusterId("the cluster"))
        self.history = {self.model.version: self.model}
        self.seen: list[list[int]] = [[], []]
        self.stores = [self._open(0), self._open(1)]

    def _open(self, node: int) -> SqliteMetadataStore:
        # Snapshots so often that nodes fall behind them and that a proposal can span two.
        store = SqliteMetadataStore(
            Path(self.directory.name, "metadata.db"), cluster_id="the cluster", snapshot_interval=2
        )
        store.watch(lambda before, after: self._moved(node, before, after))
        self.seen[node] = [store.image.version]
        return store

    def _moved(self, node: int, before: MetadataImage, after: MetadataImage) -> None:
        assert before.version == self.seen[node][-1] < after.version
        self.seen[node].append(after.version)

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
        refused = self._fold(proposal)
        self._try(node, proposal, None, refused)

    @rule(node=_nodes, proposal=_proposals)
    def compare_and_set(self, node: int, proposal: list[Change]) -> None:
        expected = self.stores[node].image.version
        stale = expected != self.model.version
        self._try(node, proposal, expected, VersionConflict if stale else self._fold(proposal))

    def _try(
        self,
        node: int,
        proposal: list[Change],
        expected_version: int | None,
        error: type[MetadataError] | None,
    ) -> None:
        store = self.stores[node]
        if error is None:
            assert store.propose(*proposal, expected_version=expected_version) == self.model
        else:
            with pytest.raises(error):
                store.propose(*proposal, expected_version=expected_version)
        assert store.image == self.model

    @rule(node=_nodes)
    def poll(self, node: int) -> None:
        assert self.stores[node].poll() == self.model

    @rule(node=_nodes, count=st.integers(1, 5))
    def allocate_producer_ids(self, node: int, count: int) -> None:
        block = self.stores[node].allocate_producer_ids(node, count)
        assert block == range(self.model.next_producer_id, self.model.next_producer_id + count)
        assert self._fold([AllocateProducerIds(node, count)]) is None
        assert self.stores[node].image == self.model

    @rule(node=_nodes)
    def reopen(self, node: int) -> None:
        self.stores[node].close()
        self.stores[node] = self._open(node)
        assert self.stores[node].image == self.model

    @invariant()
    def images_are_of_the_history(self) -> None:
        for node, store in enumerate(self.stores):
            assert store.image == self.history[store.image.version]
            assert self.seen[node][-1] == store.image.version

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.directory.cleanup()


TestTwoNodesOneFile = TwoNodesOneFile.TestCase
TestTwoNodesOneFile.settings = settings(stateful_step_count=25)
