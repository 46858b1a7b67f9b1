"""A stand-in for a broker: says what a test tells it to, over a real socket.

Which answer comes late, not at all, or is followed by a hang-up cannot be provoked with a real
broker at a chosen moment; that is all this class is for. What real brokers say is tested in
tests/conformance.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict, deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import (
    message,
    read_request,
    read_request_header,
    response_parts,
)
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from ssl import SSLContext

    from ottla.wire.spec import Span


PATIENCE: Final = 20.0


class Instead(Enum):
    """What can happen in place of an answer."""

    SILENCE = "silence"
    HANG_UP = "hang up"
    GARBAGE = "garbage"


class ScriptedBroker:
    """Answers from `scripts`, a queue of answers for each type of request.

    ApiVersions and Metadata are answered without a script, Metadata from `metadata`. The last
    answer of a script is used for all further requests. A function in a script is given the
    request and returns the answer.
    """

    def __init__(
        self,
        versions: Mapping[int, Span] | None = None,
        ssl: SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        ours = {key: message(key, request=True).versions for key in API_NAMES}
        self.versions = dict(ours if versions is None else versions)
        self._ssl = ssl
        self._host = host
        self.scripts: dict[type, deque[Any]] = defaultdict(deque)
        self.metadata = MetadataResponse()
        self.requests: list[Any] = []
        self.versions_used: list[tuple[str, int]] = []
        self.connections = 0
        self.open_connections = 0
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0, ssl=self._ssl)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def script(self, request: type, *answers: Any) -> None:
        """Let these be the answers to requests of this type."""
        self.scripts[request] = deque(answers)

    def asked(self, kind: type) -> list[Any]:
        """The requests of one type so far."""
        return [one for one in self.requests if isinstance(one, kind)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until requests or connections have made this true; a hang is a failure."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_left(self) -> None:
        """Wait until nobody is connected."""
        await self.until(lambda: not self.open_connections)

    def hang_up(self) -> None:
        """Close all connections, and go on listening."""
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        self._server.close()
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        self.open_connections += 1
        try:
            await self._serve(reader, writer)
        except (asyncio.CancelledError, OSError, EOFError):
            # The other end or the test has gone; there is nobody left to tell.
            pass
        finally:
            self.open_connections -= 1
            self._changed.set()
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            frame = memoryview(await reader.readexactly(size))
            header = read_request_header(frame)
            request = read_request(header, frame)
            self.requests.append(request)
            self._changed.set()
            self.versions_used.append((API_NAMES[header.api_key], header.api_version))
            answer, version = self._answer(request, header.api_key, header.api_version)
            if answer is Instead.HANG_UP:
                return
            if answer is Instead.GARBAGE:
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            elif answer is Instead.SILENCE:
                # Answers keep their order, so whatever follows is not answered either.
                await reader.read()
                return
            else:
                parts = response_parts(header.api_key, version, header.correlation_id, answer)
                writer.writelines(parts)

    def _answer(self, request: Any, api_key: int, version: int) -> tuple[Any, int]:
        script = self.scripts[type(request)]
        if script:
            answer = script.popleft() if len(script) > 1 else script[0]
            return (answer(request) if callable(answer) else answer), version
        if isinstance(request, ApiVersionsRequest):
            keys = [ApiVersion(key, *span) for key, span in self.versions.items()]
            if version > self.versions[api_key][1]:
                return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION), 0
            return ApiVersionsResponse(api_keys=keys), version
        if isinstance(request, MetadataRequest):
            asked = request.topics
            topics = [
                topic
                for topic in self.metadata.topics
                if asked is None or topic.name in {one.name for one in asked}
            ]
            known = {topic.name for topic in topics}
            topics += [
                MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, one.name)
                for one in asked or ()
                if one.name not in known
            ]
            return self.metadata._replace(topics=topics), version
        raise AssertionError(f"no script for {request}")


def describe(
    brokers: Mapping[int, ScriptedBroker],
    leaders: Mapping[str, Sequence[int]] | None = None,
    controller: int = -1,
) -> None:
    """Let all the brokers say that these are the brokers, and these the leaders of partitions."""
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node, "127.0.0.1", broker.port)
            for node, broker in brokers.items()
        ],
        cluster_id="scripted",
        controller_id=controller,
        topics=[
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader)
                    for index, leader in enumerate(nodes)
                ],
            )
            for name, nodes in (leaders or {}).items()
        ],
    )
    for broker in brokers.values():
        broker.metadata = answer
