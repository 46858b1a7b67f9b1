"""update_raft_voter, API key 82. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class KRaftVersionFeature(NamedTuple):
    min_supported_version: int = 0
    max_supported_version: int = 0


class UpdateRaftVoterRequest(NamedTuple):
    cluster_id: str | None = ""
    current_leader_epoch: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: Sequence[Listener] = ()
    k_raft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


UPDATE_RAFT_VOTER_REQUEST = Message(
    82,
    True,
    UpdateRaftVoterRequest,
    (0, 0),
    0,
    {
        Listener: (
            Field("name", "string"),
            Field("host", "string"),
            Field("port", "uint16"),
        ),
        KRaftVersionFeature: (
            Field("min_supported_version", "int16"),
            Field("max_supported_version", "int16"),
        ),
        UpdateRaftVoterRequest: (
            Field("cluster_id", "string", nullable=ALWAYS),
            Field("current_leader_epoch", "int32"),
            Field("voter_id", "int32"),
            Field("voter_directory_id", "uuid"),
            Field("listeners", Listener, array=True),
            Field("k_raft_version_feature", KRaftVersionFeature),
        ),
    },
)


class CurrentLeader(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1
    host: str = ""
    port: int = 0


class UpdateRaftVoterResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    current_leader: CurrentLeader = CurrentLeader()


UPDATE_RAFT_VOTER_RESPONSE = Message(
    82,
    False,
    UpdateRaftVoterResponse,
    (0, 0),
    0,
    {
        CurrentLeader: (
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
        ),
        UpdateRaftVoterResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("current_leader", CurrentLeader, tag=0),
        ),
    },
)
