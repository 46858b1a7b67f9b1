"""The Admin client: topics, configurations, groups, transactions, users and rights of a cluster.

    async with Admin("127.0.0.1:9092") as admin:
        await admin.create_topic("orders", partitions=6)

Every call finds the broker it needs, waits out what passes (a leader that moves, a broker that
restarts) for up to `api_timeout` seconds, and raises a `ClientError` that says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ottla.client.admin.acls import AclCalls
from ottla.client.admin.log_dirs import LogDirCalls
from ottla.client.admin.nodes import NodeCalls
from ottla.client.admin.quotas import QuotaCalls
from ottla.client.admin.share import ShareGroupCalls
from ottla.client.admin.topics import TopicCalls
from ottla.client.admin.transactions import TransactionCalls
from ottla.client.admin.types import ClusterDescription
from ottla.client.admin.users import UserCalls
from ottla.client.cluster.cluster import API_TIMEOUT, Client
from ottla.client.cluster.connection import REQUEST_TIMEOUT
from ottla.client.security import PLAINTEXT, Security

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType


class Admin(
    TopicCalls,
    ShareGroupCalls,
    TransactionCalls,
    UserCalls,
    AclCalls,
    QuotaCalls,
    NodeCalls,
    LogDirCalls,
):
    """An async context manager; `bootstrap` is "host:port,..." or a sequence of "host:port".

    >>> from ottla import Admin
    >>> async with Admin("127.0.0.1:9092") as admin:
    ...     made = await admin.create_topic("invoices", partitions=6)
    ...     print(made.partitions, [topic.name for topic in await admin.list_topics()])
    6 ['invoices', 'orders']
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str | None = "ottla-admin",
        security: Security = PLAINTEXT,
        request_timeout: float = REQUEST_TIMEOUT,
        api_timeout: float = API_TIMEOUT,
        max_versions: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(
            Client(
                bootstrap,
                client_id=client_id,
                security=security,
                request_timeout=request_timeout,
                api_timeout=api_timeout,
                max_versions=max_versions,
            )
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._client.throttled_seconds

    async def connect(self) -> None:
        """Reach a broker now, in one attempt. Calls do this themselves, and are more patient."""
        await self._client.connection_to("any")

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its brokers and its controller."""
        view = await self._client.retry(lambda: self._client.refresh(()))
        brokers = [broker for _, broker in sorted(view.brokers.items())]
        return ClusterDescription(view.cluster_id, view.controller_id, brokers)
