"""The schema registry's coordinator on this node: its machine over partition 0 of `_schemas`.

The leader of that partition decides. The topic is made by the first change; until then the registry
is empty, and nothing is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.service import CoordinatorService
from ottla.broker.errors import ApiError
from ottla.registry.errors import Code, LedElsewhere, RegistryError
from ottla.registry.machine import RegistryMachine
from ottla.registry.requests import Done, Look
from ottla.registry.state import State
from ottla.schemas.compatibility import Level
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.coordinators.log import Hosting
    from ottla.coordination.machine import Effect
    from ottla.metadata.image import MetadataImage
    from ottla.registry.records import Record
    from ottla.registry.requests import Request, Response

PARTITION: Final = 0
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    # Of a client that copies the topic: a schema of the largest size, as JSON within JSON.
    "max.message.bytes": str(16 * 1024 * 1024),
}


class RegistryCoordinator:
    """`ask` gives a request to the machine; refusals are `RegistryError`."""

    def __init__(self, hosting: Hosting) -> None:
        self._cluster = hosting.cluster
        self.level = Level(hosting.cluster.config.get_str("ottla.registry.compatibility"))
        topic = hosting.cluster.registry_topic
        assert topic is not None, "the node serves the registry"
        self._machine = RegistryMachine(self.level)
        self._service: CoordinatorService[Request, Record, Response] = CoordinatorService(
            hosting, topic, self._made, _perform
        )

    def start(self) -> None:
        """Load what has been registered before."""
        self._service.start()

    def arrived(self, index: int) -> None:
        """The log of this partition came from another node."""
        if index == PARTITION:
            self._service.arrived(index)

    async def stop(self) -> None:
        await self._service.close()

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.topics_by_name is not after.topics_by_name:
            self._service.leaders_changed(after)

    @property
    def loading(self) -> int:
        return self._service.loading

    @property
    def leader(self) -> int | None:
        """The node that decides; None while there is no topic: any may."""
        topic = self._cluster.image.topic(self._service.topic_name)
        return None if topic is None else topic.partitions[PARTITION].leader

    @property
    def state(self) -> State | None:
        """For metrics: what is loaded here; None if nothing is."""
        return self._machine.state if PARTITION in self._service.loaded else None

    async def ask(self, request: Request) -> Response:
        if isinstance(request, Look) and self.leader is None:
            return _empty(request)
        try:
            if self.leader is None:
                await self._service.ensure_topic(1, CONFIGS)
            if self.leader != self._cluster.node_id:
                raise LedElsewhere(Code.NO_LEADER, f"node {self.leader} leads the registry's topic")
            return await self._service.ask_at(PARTITION, request)
        except ApiError as error:
            code = Code.STORE
            if error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                code = Code.NO_LEADER
            raise RegistryError(code, f"the registry's topic cannot be used: {error}") from error

    def _made(self, index: int) -> RegistryMachine:
        machine = RegistryMachine(self.level)
        if index == PARTITION:
            self._machine = machine
        return machine


def _perform(effect: Effect) -> None:
    raise AssertionError(f"the registry has no effects: {effect!r}")


def _empty(request: Look) -> Response:
    try:
        return Done(request.view(State()))
    except RegistryError as error:
        return error
