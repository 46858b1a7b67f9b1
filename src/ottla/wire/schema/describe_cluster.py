"""describe_cluster, API key 60. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class DescribeClusterRequest(NamedTuple):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False
    with_state: bool = False


DESCRIBE_CLUSTER_REQUEST = Message(
    60,
    True,
    DescribeClusterRequest,
    (0, 2),
    0,
    {
        DescribeClusterRequest: (
            Field("include_cluster_authorized_operations", "bool"),
            Field("endpoint_type", "int8", versions=(1, 2)),
            Field("include_fenced_brokers", "bool", versions=(2, 2)),
            Field("with_state", "bool", tag=10000),
        ),
    },
)


class DescribeClusterBroker(NamedTuple):
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False
    state: int = -1
    lease_left_ms: int = -1
    leaders: int = -1
    load: str = ""


class DescribeClusterResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    cluster_authorized_operations: int = -2147483648
    registry_url: str = ""


DESCRIBE_CLUSTER_RESPONSE = Message(
    60,
    False,
    DescribeClusterResponse,
    (0, 2),
    0,
    {
        DescribeClusterBroker: (
            Field("broker_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", nullable=ALWAYS),
            Field("is_fenced", "bool", versions=(2, 2)),
            Field("state", "int8", tag=10000),
            Field("lease_left_ms", "int32", tag=10001),
            Field("leaders", "int32", tag=10002),
            Field("load", "string", tag=10003),
        ),
        DescribeClusterResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("endpoint_type", "int8", versions=(1, 2)),
            Field("cluster_id", "string"),
            Field("controller_id", "int32"),
            Field("brokers", DescribeClusterBroker, array=True),
            Field("cluster_authorized_operations", "int32"),
            Field("registry_url", "string", tag=10000),
        ),
    },
)
