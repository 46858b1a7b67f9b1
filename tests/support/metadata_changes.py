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
from ottla.metadata.changes.security import (
    AddAcls,
    RemoveAcls,
    RemoveScramCredential,
    SetClientQuotas,
    SetScramCredential,
)
from ottla.metadata.changes.topics import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    Leadership,
    SetLeaders,
)
from ottla.metadata.image import NO_LEADER, Endpoint, ResourceType
from ottla.metadata.security.acls import Acl, Operation, Pattern, Permission, Resource
from ottla.metadata.security.quotas import EntityPart
from ottla.metadata.security.users import ScramCredential

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
_acls = st.lists(
    st.builds(
        Acl,
        st.sampled_from(Resource),
        st.sampled_from(Pattern),
        st.sampled_from(["t", "*"]),
        st.sampled_from(["User:a", "User:*"]),
        st.just("*"),
        st.sampled_from([Operation.ALL, Operation.READ]),
        st.sampled_from(Permission),
    ),
    max_size=4,
).map(tuple)
_users = st.sampled_from(["alice", "b\u00f6b"])
_mechanisms = st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"])
_entities = st.sampled_from(
    [
        (EntityPart("user", "alice"),),
        (EntityPart("client-id", None), EntityPart("user", None)),
        (EntityPart("ip", "10.0.0.1"),),
    ]
)
_rates = st.sampled_from([1.0, 0.5, 1e9])


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
            SetLeaders,
            st.lists(
                st.builds(
                    Leadership,
                    _ids,
                    st.integers(-1, 2),
                    st.none() | st.sampled_from([NO_LEADER, 1, 2, 3]),
                    st.none() | _replicas,
                    st.none() | st.integers(0, 2),
                ),
                max_size=3,
            ).map(tuple),
        ),
        st.builds(
            SetConfigs,
            st.sampled_from(ResourceType),
            _names,
            st.dictionaries(_keys, st.none() | st.text()),
        ),
        st.builds(SetFeature, st.sampled_from(["f", "g"]), st.integers(-1, 2)),
        st.builds(AllocateProducerIds, _nodes, st.integers(0, 2)),
        st.builds(AddAcls, _acls),
        st.builds(RemoveAcls, _acls),
        st.builds(
            SetScramCredential,
            _users,
            _mechanisms,
            st.builds(
                ScramCredential, st.binary(), st.integers(4096, 4099), st.binary(), st.binary()
            ),
        ),
        st.builds(RemoveScramCredential, _users, _mechanisms),
        st.builds(
            SetClientQuotas,
            _entities,
            st.dictionaries(
                st.sampled_from(["producer_byte_rate", "request_percentage"]), st.none() | _rates
            ),
        ),
    )
