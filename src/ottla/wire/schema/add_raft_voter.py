"""add_raft_voter, API key 80. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class AddRaftVoterRequest(NamedTuple):
    cluster_id: str | None = ""
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: Sequence[Listener] = ()
    ack_when_committed: bool = True


ADD_RAFT_VOTER_REQUEST = Message(
    80,
    True,
    AddRaftVoterRequest,
    (0, 1),
    0,
    {
        Listener: (
            Field("name", "string"),
            Field("host", "string"),
            Field("port", "uint16"),
        ),
        AddRaftVoterRequest: (
            Field("cluster_id", "string", nullable=ALWAYS),
            Field("timeout_ms", "int32"),
            Field("voter_id", "int32"),
            Field("voter_directory_id", "uuid"),
            Field("listeners", Listener, array=True),
            Field("ack_when_committed", "bool", versions=(1, 1)),
        ),
    },
)


class AddRaftVoterResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""


ADD_RAFT_VOTER_RESPONSE = Message(
    80,
    False,
    AddRaftVoterResponse,
    (0, 1),
    0,
    {
        AddRaftVoterResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
    },
)
