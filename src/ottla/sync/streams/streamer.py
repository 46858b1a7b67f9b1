"""Streamer without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.streamer import Streamer as AsyncStreamer
from ottla.streams.streamer import connect as async_connect
from ottla.sync.streams.consumer import Consumer
from ottla.sync.streams.producer import Producer
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.streams.base import Driver
    from ottla.streams.streamer import OneBackendOptions
    from ottla.streams.types import Backend, ConnectOptions, ConsumerOptions, ProducerOptions
    from ottla.streams.url import StreamUrl


class Streamer(Twin[AsyncStreamer]):
    """A connection to one store. Closing it closes its consumers and producers."""

    def __init__(self, url: StreamUrl, options: ConnectOptions) -> None:
        super().__init__(lambda: AsyncStreamer(url, options))

    @property
    def url(self) -> StreamUrl:
        """As given."""
        return self._async.url

    @property
    def backend(self) -> Backend:
        """The kind of store."""
        return self._call(lambda: self._async.backend)

    @property
    def driver(self) -> Driver:
        """The backend, for operations that only this store has."""
        return self._call(lambda: self._async.driver)

    def close(self) -> None:
        """Close consumers, then producers, then the connection; all of them, if one fails, too."""
        self._run(self._async.close())

    def consumer(self, *streams: str, options: ConsumerOptions | None = None) -> Consumer:
        """A consumer of these streams, or of those in the URL; `with` connects it."""
        return Consumer._of(self._call(lambda: self._async.consumer(*streams, options=options)))

    def producer(
        self, stream: str | None = None, *, options: ProducerOptions | None = None
    ) -> Producer:
        """A producer for `stream`, or for the only stream in the URL; `with` connects it."""
        return Producer._of(self._call(lambda: self._async.producer(stream, options=options)))


def connect(
    url: str,
    options: ConnectOptions | OneBackendOptions | None = None,
    *,
    security: Security | None = None,
) -> Streamer:
    """A streamer for a URL; `with` connects it.

    Options of one backend may be given alone: `connect(url, FileOptions(...))`. `security` is for
    kafka URLs, the same as `KafkaOptions(security=...)`; a URL may name a file with it instead:
    `kafka://HOST:PORT/orders?config=client.properties`.
    """
    return Streamer._made(lambda: async_connect(url, options))
