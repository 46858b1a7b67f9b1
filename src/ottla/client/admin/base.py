"""Shared by all parts of the Admin client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client import arguments
from ottla.client.cluster.cluster import together
from ottla.client.cluster.retry import is_passing
from ottla.client.errors import (
    BrokerUnreachable,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    afresh,
    raise_failures,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import TopicPartition

T = TypeVar("T")


class AdminBase:
    """Holds the client that the calls go through."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def _timeout_ms(self) -> int:
        """How long a broker may take over a change."""
        return int(self._client.request_timeout * 1000)

    async def _once(self, attempt: Callable[[], Awaitable[T]], what: str, look: str) -> T:
        """The result of a change that is not sent again once it may have been carried out.

        `look` is the call that shows whether it was.
        """
        try:
            return await self._client.retry(attempt, repeatable=False)
        except BrokerUnreachable:
            raise  # it was not sent
        except (ConnectionLost, RequestTimedOut) as lost:
            unsure = afresh(lost)
            advice = f"check with {look}, and call again if it was not"
            unsure.args = (f"{what}: {lost}; it may have been carried out: {advice}",)
            raise unsure from lost

    async def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """The partitions under the brokers that lead them."""
        wanted = list(partitions)
        await self._client.topics({one.topic for one in wanted})
        found: dict[int, list[TopicPartition]] = {}
        for one in wanted:
            found.setdefault(await self._client.leader_of(one), []).append(one)
        return found


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers under the names of their topics."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def check_parts(what: str, outcomes: Mapping[Any, KafkaError | None]) -> None:
    """Raise what keeps parts of a request from being served.

    What passes is raised as it is, so that the request is sent again as a whole.
    """
    for error in outcomes.values():
        if error is not None and is_passing(error):
            raise error
    raise_failures(what, outcomes)


async def each(
    what: str,
    names: Iterable[str],
    call: Callable[[str], Coroutine[Any, Any, object]],
    *,
    return_errors: bool,
) -> dict[str, KafkaError | None]:
    """The outcome of a call for each name, where a refusal of one does not stop the others."""
    arguments.flag("return_errors", return_errors)

    async def one(name: str) -> KafkaError | None:
        try:
            await call(name)
        except KafkaError as refusal:
            return refusal
        return None

    wanted = arguments.texts("names", names)
    outcomes = dict(zip(wanted, await together(one(name) for name in wanted), strict=True))
    if not return_errors:
        raise_failures(what, outcomes)
    return outcomes
