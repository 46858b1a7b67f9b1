"""DescribeCluster (60) and ListPartitionReassignments (46).

DescribeCluster shows the brokers with the address of the listener the request came in on; there are
no separate controllers, so that endpoint type is refused. ListPartitionReassignments is always
empty; kafka-topics --describe asks for it. It needs describe on the cluster, and so do the
authorized operations in DescribeCluster; every client may see the brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import NOT_ASKED
from ottla.metadata.security.acls import Operation
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext

BROKER_ENDPOINTS = 1


def describe_cluster(
    context: RequestContext, request: DescribeClusterRequest, cluster: Cluster
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Only broker endpoints can be described.",
        )
    return DescribeClusterResponse(
        cluster_id=cluster.image.cluster_id,
        controller_id=cluster.node_id,
        cluster_authorized_operations=context.cluster_operations()
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
        brokers=[
            DescribeClusterBroker(broker.node_id, endpoint.host, endpoint.port, broker.rack)
            for broker, endpoint in cluster.endpoints(context.peer.listener)
        ],
    )


def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        context.require_cluster(Operation.DESCRIBE)
    except ApiError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    return ListPartitionReassignmentsResponse(error_message=None)
