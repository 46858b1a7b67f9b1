"""remove_raft_voter, API key 81. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class RemoveRaftVoterRequest(NamedTuple):
    cluster_id: str | None = ""
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID


REMOVE_RAFT_VOTER_REQUEST = Message(
    81,
    True,
    RemoveRaftVoterRequest,
    (0, 0),
    0,
    {
        RemoveRaftVoterRequest: (
            Field("cluster_id", "string", nullable=ALWAYS),
            Field("voter_id", "int32"),
            Field("voter_directory_id", "uuid"),
        ),
    },
)


class RemoveRaftVoterResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""


REMOVE_RAFT_VOTER_RESPONSE = Message(
    81,
    False,
    RemoveRaftVoterResponse,
    (0, 0),
    0,
    {
        RemoveRaftVoterResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
    },
)
