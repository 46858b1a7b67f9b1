"""The coordinators of an internal topic, one per partition: find, load and ask them.

The topic is created when a coordinator is first looked up. A partition of it is loaded at its first
request, or at the start if it has been used before; until then it costs nothing.

A partition that cannot be read answers COORDINATOR_NOT_AVAILABLE for its keys; a later request
retries it, at most once per `RETRY_SECONDS`. Other partitions are not affected.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.broker.coordinators.log import InternalTopicLog
from ottla.broker.errors import ApiError
from ottla.broker.topics import ensure_topic
from ottla.coordination.partitioner import partition_for
from ottla.coordination.runtime import CoordinatorError, CoordinatorRuntime
from ottla.log.errors import LogClosed, NotArrived
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from ottla.broker.coordinators.log import Hosting, Note
    from ottla.coordination.machine import Effect, Machine, Transaction
    from ottla.metadata.image import MetadataImage, Topic

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")
ExpectedT = TypeVar("ExpectedT")

RETRY_SECONDS: Final = 1.0  # clients ask again within 100 ms, and a replay may read gigabytes

logger = logging.getLogger(__name__)


class CoordinatorService(Generic[RequestT, RecordT, ResponseT]):
    """The coordinators of one internal topic; refusals are `ApiError`."""

    def __init__(
        self,
        hosting: Hosting,
        topic: str,
        machine: Callable[[int], Machine[RequestT, RecordT, ResponseT]],
        perform: Callable[[Effect], None],
        note: Note | None = None,
    ) -> None:
        self._cluster = hosting.cluster
        self._data = hosting.data
        self.topic_name = topic
        self._clock = hosting.clock
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._began: dict[int, float] = {}
        """When each was last loaded, in monotonic seconds."""
        self._topic_id: UUID | None = None
        """Id of the loaded topic: a recreated topic has the same name."""
        self._runtime: CoordinatorRuntime[RequestT, RecordT, ResponseT] = CoordinatorRuntime(
            InternalTopicLog(hosting, topic, note), machine, hosting.clock, perform
        )

    def start(self) -> None:
        """Load partitions that have been used before."""
        for index in self._data.partitions_on_disk(self.topic_name):
            self.load(index)

    def arrived(self, index: int) -> None:
        """Load a partition whose log came from another node."""
        load = self._loads.get(index)
        if load is not None and load.done() and not self._serves(index):
            del self._loads[index]  # its log was not here
        self.load(index)

    @property
    def loaded(self) -> list[int]:
        """The partitions that can be asked at once."""
        return [index for index, load in self._loads.items() if load.done() and self._serves(index)]

    @property
    def loading(self) -> int:
        """How many partitions are being loaded."""
        return sum(not load.done() for load in self._loads.values())

    async def close(self) -> None:
        for load in self._loads.values():
            load.cancel()
        await self._runtime.close()

    def leaders_changed(self, image: MetadataImage) -> None:
        """Unload partitions that another node leads now."""
        topic = image.topic(self.topic_name)
        for index in tuple(self._loads):
            if (
                topic is None
                or topic.topic_id != self._topic_id
                or topic.partitions[index].leader != self._cluster.node_id
            ):
                del self._loads[index], self._began[index]
                self._runtime.unload(index)

    async def ensure_topic(self, partitions: int, configs: Mapping[str, str]) -> Topic:
        """The topic, created if it is missing."""
        try:
            return await ensure_topic(
                self._cluster, self.topic_name, partitions=partitions, configs=configs
            )
        except ApiError as error:
            # After any failure to create it, clients look their coordinator up again.
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    def index_of(self, key: str) -> int:
        """The partition that owns a key; NOT_COORDINATOR if it is not led here."""
        topic = self._cluster.image.topic(self.topic_name)
        if topic is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        index = partition_for(key, len(topic.partitions))
        if topic.partitions[index].leader != self._cluster.node_id:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return index

    async def ask(self, key: str, request: RequestT, expect: type[ExpectedT]) -> ExpectedT:
        """The key's coordinator decides; the answer comes when it is committed."""
        index = self.index_of(key)
        await self._ready(index)
        return await self.submit(index, request, expect)

    async def ask_at(self, index: int, request: RequestT) -> ResponseT:
        """The same of a partition that is led here, whatever the answer is."""
        await self._ready(index)
        try:
            return await self._runtime.submit(index, request)
        except CoordinatorError as error:
            raise ApiError(ErrorCode(error.error_code)) from error

    def submit_now(self, key: str, request: RequestT) -> asyncio.Future[ResponseT]:
        """Decide now, so that requests keep their order; the partition must be loaded."""
        try:
            return self._runtime.submit(self.index_of(key), request)
        except CoordinatorError as error:
            raise ApiError(ErrorCode(error.error_code)) from error

    async def answered(self, future: asyncio.Future[ResponseT]) -> ResponseT:
        """The answer to what `submit_now` decided, once it is committed."""
        try:
            return await future
        except CoordinatorError as error:
            raise ApiError(ErrorCode(error.error_code)) from error

    async def submit(self, index: int, request: RequestT, expect: type[ExpectedT]) -> ExpectedT:
        try:
            response = await self._runtime.submit(index, request)
        except CoordinatorError as error:
            raise ApiError(ErrorCode(error.error_code)) from error
        assert isinstance(response, expect)
        return response

    async def ask_in(
        self,
        index: int,
        transaction: Transaction,
        request: RequestT,
        expect: type[ExpectedT],
        admit: Callable[[], None] = lambda: None,
    ) -> ExpectedT:
        """Like `ask`, for requests in a transaction or its end; the partition is led here."""
        await self._ready(index)
        try:
            response = await self._runtime.submit_in(index, transaction, request, admit)
        except CoordinatorError as error:
            raise ApiError(ErrorCode(error.error_code)) from error
        assert isinstance(response, expect)
        return response

    async def ask_all(self, request: RequestT, expect: type[ExpectedT]) -> list[ExpectedT]:
        """The answers of all partitions that have been used and can be read."""
        answers = []
        for index in sorted(self._loads):
            try:
                await self._ready(index)
                answers.append(await self.submit(index, request, expect))
            except ApiError as error:
                logger.info("%s-%d is left out: %s", self.topic_name, index, error)
        return answers

    async def _ready(self, index: int) -> None:
        """Wait until the partition is loaded; `ApiError` if it cannot be read."""
        load = self.load(index)
        try:
            await asyncio.shield(load)
        except CoordinatorError as error:
            raise ApiError(ErrorCode(error.error_code)) from error
        except Exception as error:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic_name}-{index} cannot be read."
            ) from error

    def load(self, index: int) -> asyncio.Task[None]:
        """Begin to load the partition, unless that has been done."""
        load = self._loads.get(index)
        now = self._clock.monotonic()
        if load is not None:
            is_lost = load.done() and not self._serves(index)
            if not is_lost or now < self._began[index] + RETRY_SECONDS:
                return load
        topic = self._cluster.image.topic(self.topic_name)
        self._topic_id = None if topic is None else topic.topic_id
        self._began[index] = now
        load = self._loads[index] = asyncio.ensure_future(self._runtime.load(index))
        load.add_done_callback(lambda done: self._load_ended(index, done))
        return load

    def _serves(self, index: int) -> bool:
        """Whether the partition has been loaded, and not been lost since."""
        return self._runtime.is_hosted(index)

    def _load_ended(self, index: int, load: asyncio.Task[None]) -> None:
        if load.cancelled() or (error := load.exception()) is None:
            return
        if self._loads.get(index) is not load or isinstance(error, LogClosed | NotArrived):
            # Given up meanwhile: the partition moved, its topic was deleted, or the broker stops.
            # Or it is on its way here.
            logger.info("%s-%d is not loaded any more: %r", self.topic_name, index, error)
        else:
            logger.error(
                "%s-%d cannot be read; until then its groups or transactions have no coordinator",
                self.topic_name,
                index,
                exc_info=error,
            )
