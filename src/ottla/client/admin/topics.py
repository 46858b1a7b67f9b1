"""Admin calls on topics."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.admin.base import each
from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.types import CreatedTopic, TopicDescription, TopicListing
from ottla.client.arguments import INT16
from ottla.client.cluster.cluster import together
from ottla.client.cluster.retry import RETRY
from ottla.client.errors import ClientError, check
from ottla.randomness import RANDOM
from ottla.wire.schema.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.errors import KafkaError


# Seconds. Brokers learn of a new topic in a fraction of a second, unless they are very busy.
HEARD_OF_WITHIN: Final = 15.0


class TopicCalls(ConfigCalls):
    """Create, list, describe, grow and delete topics."""

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic; -1 leaves a number to the broker's defaults.

        Returns when a broker that is asked for the topic knows it, as far as that can be waited
        for: Kafka's brokers answer before they do.

        >>> from ottla import Admin
        >>> async with Admin("127.0.0.1:9092") as admin:
        ...     await admin.create_topic("users", 3, configs={"cleanup.policy": "compact"})
        CreatedTopic(name='users', id=..., partitions=3, replication_factor=1)
        """
        arguments.text("name", name)
        partitions = arguments.whole("partitions", partitions, -1)
        replication_factor = arguments.whole("replication_factor", replication_factor, -1, INT16)
        arguments.flag("validate_only", validate_only)
        wanted = arguments.settings("configs", {} if configs is None else configs, nullable=False)
        settings = [CreatableTopicConfig(key, value) for key, value in wanted.items()]
        topic = CreatableTopic(name, partitions, replication_factor, (), settings)
        request = CreateTopicsRequest([topic], self._timeout_ms, validate_only)
        # Brokers know of defaults since version 4.
        low = 4 if -1 in (partitions, replication_factor) else 0
        what = f"create topic {name!r}"

        async def attempt() -> CreatedTopic:
            answer: CreateTopicsResponse = await self._client.send(
                request, to="controller", min_version=low
            )
            made = answer.topics[0]
            check(made.error_code, what, made.error_message)
            return CreatedTopic(name, made.topic_id, made.num_partitions, made.replication_factor)

        if validate_only:
            return await self._client.retry(attempt)
        made = await self._once(attempt, what, "list_topics()")
        # The topic exists now, even if this look-up fails.
        with suppress(TimeoutError, ClientError):
            async with asyncio.timeout(HEARD_OF_WITHIN):
                await self._until_heard_of(name)
        return made

    async def _until_heard_of(self, name: str) -> None:
        attempts = 0
        while name not in (await self._client.refresh([name])).topics:
            attempts += 1
            await asyncio.sleep(RETRY.delay(attempts, RANDOM.random()))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        arguments.text("name", name)
        request = DeleteTopicsRequest([name], [DeleteTopicState(name)], self._timeout_ms)
        what = f"delete topic {name!r}"

        async def attempt() -> None:
            answer: DeleteTopicsResponse = await self._client.send(request, to="controller")
            gone = answer.responses[0]
            check(gone.error_code, what, gone.error_message)

        await self._once(attempt, what, "list_topics()")

    async def delete_topics(
        self, names: Iterable[str], *, return_errors: bool = False
    ) -> dict[str, KafkaError | None]:
        """Delete several topics; raises `PartialFailure` if some cannot be deleted.

        With `return_errors` they are returned with their errors instead.
        """
        return await each("delete topics", names, self.delete_topic, return_errors=return_errors)

    async def create_partitions(self, topic: str, total: int) -> None:
        """Let a topic grow to this many partitions."""
        arguments.text("topic", topic)
        total = arguments.whole("total", total, 1)
        request = CreatePartitionsRequest(
            [CreatePartitionsTopic(topic, total, None)], self._timeout_ms
        )
        what = f"grow topic {topic!r} to {total}"

        async def attempt() -> None:
            answer: CreatePartitionsResponse = await self._client.send(request, to="controller")
            grown = answer.results[0]
            check(grown.error_code, what, grown.error_message)

        await self._once(attempt, what, "describe_topics()")

    async def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """All topics by name; internal topics only with `internal`."""
        arguments.flag("internal", internal)
        view = await self._client.retry(lambda: self._client.refresh(None))
        return [
            TopicListing(topic.name, topic.id, topic.is_internal, len(topic.partitions))
            for _, topic in sorted(view.topics.items())
            if internal or not topic.is_internal
        ]

    async def describe_topics(
        self, names: Iterable[str], *, configs: bool = False
    ) -> list[TopicDescription]:
        """Topics with their partitions, in the requested order; settings with `configs`."""
        wanted = arguments.texts("names", names)
        arguments.flag("configs", configs)

        async def attempt() -> list[TopicDescription]:
            await self._client.refresh(wanted)
            found = (await self._client.topics(wanted)).values()
            return [
                TopicDescription(topic.name, topic.id, topic.is_internal, topic.partitions)
                for topic in found
            ]

        described = await self._client.retry(attempt)
        if not configs:
            return described
        settings = await together(self.describe_configs("topic", name) for name in wanted)
        return [
            TopicDescription(one.name, one.id, one.is_internal, one.partitions, entries)
            for one, entries in zip(described, settings, strict=True)
        ]
