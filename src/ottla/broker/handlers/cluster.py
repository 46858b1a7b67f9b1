"""DescribeCluster (60).

It shows the brokers with the address of the listener the request came in on; there are no separate
controllers, so that endpoint type is refused. Fenced brokers are shown where v2 asks for them.

With our tag `with_state` each broker, fenced ones as well, has its state (0 active, 1 draining, 2
fenced) and the number of partitions it leads; that needs describe on the cluster. So do the
operations that are asked for; the brokers everybody may see. A broker tells its own `load` alone,
so a client asks each of them. Nodes of one machine have no leases: that tag is left out. Our tag
`registry_url` says where this node serves the schema registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.access.listeners import REGISTRY, endpoint_url
from ottla.broker.errors import ApiError
from ottla.broker.serving.context import NOT_ASKED
from ottla.metadata.security.acls import Operation
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.running.load import Load
    from ottla.broker.serving.context import RequestContext

BROKER_ENDPOINTS = 1
ACTIVE, DRAINING, FENCED = range(3)


def describe_cluster(
    context: RequestContext, request: DescribeClusterRequest, cluster: Cluster, load: Load
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Only broker endpoints can be described.",
        )
    if request.with_state:
        try:
            context.require_cluster(Operation.DESCRIBE)
        except ApiError as error:
            return DescribeClusterResponse(error_code=error.code, error_message=str(error))
    return DescribeClusterResponse(
        cluster_id=cluster.image.cluster_id,
        controller_id=cluster.node_id,
        cluster_authorized_operations=context.cluster_operations()
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
        brokers=_brokers(context, request, cluster, load),
        registry_url=_registry_url(cluster),
    )


def _registry_url(cluster: Cluster) -> str:
    """Of this node; the tag is left out where there is none."""
    broker = cluster.image.brokers.get(cluster.node_id)
    endpoint = None if broker is None else broker.listeners.get(REGISTRY)
    return "" if endpoint is None else endpoint_url(endpoint)


def _brokers(
    context: RequestContext, request: DescribeClusterRequest, cluster: Cluster, load: Load
) -> list[DescribeClusterBroker]:
    listener = context.peer.listener
    shows_fenced = request.with_state or request.include_fenced_brokers
    shown = [
        DescribeClusterBroker(
            broker.node_id,
            broker.listeners[listener].host,
            broker.listeners[listener].port,
            broker.rack,
            broker.fenced,
        )
        for broker in cluster.image.brokers.values()
        if listener in broker.listeners and (shows_fenced or not broker.fenced)
    ]
    return _with_state(shown, cluster, load) if request.with_state else shown


def _with_state(
    shown: list[DescribeClusterBroker], cluster: Cluster, load: Load
) -> list[DescribeClusterBroker]:
    # Not needed by other clients.
    from ottla.cluster.placement import draining, leaders

    away, led = draining(cluster.image), leaders(cluster.image)
    return [
        one._replace(
            state=FENCED if one.is_fenced else DRAINING if one.broker_id in away else ACTIVE,
            leaders=led[one.broker_id],
            load=load.as_json() if one.broker_id == cluster.node_id else "",
        )
        for one in shown
    ]
