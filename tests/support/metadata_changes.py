"""Random metadata changes over so few names, ids and nodes that they meet and get refused."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import strategies as st

from ottla.metadata.changes.configs import SetConfigs, SetFeature
from ottla.metadata.changes.nodes import (
    AllocateProducerIds,
    RegisterBroker,
    SetBrokerFenced,
    SetClusterId,
    UnregisterBroker,
)
from ottla.metadata.changes.topics import AddPartitions, CreateTopic, DeleteTopic, SetLeader
from ottla.metadata.image import NO_LEADER, Endpoint, ResourceType

if TYPE_CHECKING:
    from ottla.metadata.changes.apply import Change

NAMES = ["a", "b", "a.b", "a_b", "..", "é", "x" * 250]
TOPIC_IDS = [UUID(int=n) for n in range(6)]  # 0 and 1 are reserved

_nodes = st.integers(1, 3)
_names = st.sampled_from(NAMES)
_ids = st.sampled_from(TOPIC_IDS)
_keys = st.sampled_from(["retention.ms", "segment.bytes"])
_replicas = st.lists(_nodes, max_size=3).map(tuple)
_assignments = st.lists(_replicas, max_size=3).map(tuple)
_epochs = st.integers(0, 12)
_listeners = st.dictionaries(
    st.sampled_from(["PLAINTEXT", "OTHER"]),
    st.builds(Endpoint, st.text(max_size=3), st.integers(0, 65535)),
    max_size=2,
)


def changes() -> st.SearchStrategy[Change]:
    return st.one_of(
        st.builds(SetClusterId, st.just("another")),
        st.builds(
            RegisterBroker, st.integers(-1, 3), _listeners, st.none() | st.text(), st.booleans()
        ),
        st.builds(SetBrokerFenced, _nodes, _epochs, st.booleans()),
        st.builds(UnregisterBroker, _nodes),
        st.builds(CreateTopic, _names, _ids, _assignments, st.dictionaries(_keys, st.text())),
        st.builds(DeleteTopic, _ids),
        st.builds(AddPartitions, _ids, _assignments),
        st.builds(
            SetLeader,
            _ids,
            st.integers(-1, 2),
            st.sampled_from([NO_LEADER, 1, 2, 3]),
            st.none() | _replicas,
            st.none() | _replicas,
            st.none() | st.integers(0, 2),
        ),
        st.builds(
            SetConfigs,
            st.sampled_from(ResourceType),
            _names,
            st.dictionaries(_keys, st.none() | st.text()),
        ),
        st.builds(SetFeature, st.sampled_from(["f", "g"]), st.integers(-1, 2)),
        st.builds(AllocateProducerIds, _nodes, st.integers(0, 2)),
    )
