"""`connect(url)`: the scheme of the URL selects the store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Self, TypeAlias

from ottla.streams import arguments
from ottla.streams.consumer import Consumer
from ottla.streams.errors import (
    BackendNotInstalled,
    ConfigError,
    ConnectError,
    InvalidType,
    UrlError,
)
from ottla.streams.home import Home
from ottla.streams.life import ConsumerState
from ottla.streams.modes import consumer_name, validate
from ottla.streams.producer import Producer, make_pipe
from ottla.streams.types import (
    ConnectOptions,
    ConsumerOptions,
    FileOptions,
    KafkaOptions,
    Mode,
    ProducerOptions,
    RedisOptions,
    Reset,
    StdioOptions,
)
from ottla.streams.url import StreamUrl, parse

if TYPE_CHECKING:
    from types import TracebackType

    from ottla.client.security import Security
    from ottla.streams.base import Driver
    from ottla.streams.producer import Pipe
    from ottla.streams.types import Backend

DRIVERS = {
    "kafka": ("ottla.streams.backends.kafka", "KafkaDriver", "kafka"),
    "redis": ("ottla.streams.backends.redis", "RedisDriver", "redis"),
    "rediss": ("ottla.streams.backends.redis", "RedisDriver", "redis"),
    "file": ("ottla.streams.backends.file", "FileDriver", None),
    "stdio": ("ottla.streams.backends.stdio", "StdioDriver", None),
}
"""Module, class and extra of each scheme."""

OneBackendOptions: TypeAlias = KafkaOptions | RedisOptions | FileOptions | StdioOptions


def driver_class(scheme: str | None) -> type[Driver]:
    """The driver of a scheme; `BackendNotInstalled` names the extra that is missing."""
    if scheme is None:
        raise UrlError(
            "a URL begins with its store: kafka://HOST:PORT/, redis://HOST/, file://./FILE.ss/ or "
            "stdio:///, and the names of streams follow the last slash"
        )
    if scheme not in DRIVERS:
        raise UrlError(f"unknown scheme {scheme!r}; use one of {', '.join(DRIVERS)}")
    module, name, extra = DRIVERS[scheme]
    try:
        found: type[Driver] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise BackendNotInstalled(
            f"the {scheme} backend needs {error.name}; run: pip install 'ottla[{extra}]'"
        ) from error
    return found


class Streamer:
    """A connection to one store. Closing it closes its consumers and producers."""

    def __init__(self, url: StreamUrl, options: ConnectOptions) -> None:
        self.url = url
        self._with_query(ConsumerOptions())  # a wrong value is refused for producers too
        self._driver = driver_class(url.scheme)(url, options)
        self._home = Home("streamer")
        self._consumers: list[Consumer] = []
        self._producers: list[Producer] = []

    @property
    def backend(self) -> Backend:
        """The kind of store."""
        return self._driver.backend

    @property
    def driver(self) -> Driver:
        """The backend, for operations that only this store has."""
        return self._driver

    async def __aenter__(self) -> Self:
        self._home.check()
        self._home.enter()
        try:
            async with asyncio.timeout(self._driver.options.timeout):
                await self._driver.open()
        except TimeoutError:
            raise ConnectError(
                f"{self.url.masked} did not answer in {self._driver.options.timeout:g} s; "
                "is it running, and the address right?"
            ) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close consumers, then producers, then the connection; all of them, if one fails, too."""
        self._home.check()
        async with AsyncExitStack() as stack:
            stack.callback(self._home.leave)
            stack.push_async_callback(self._driver.close)
            for producer in self._producers:
                stack.push_async_callback(producer.close)
            for consumer in self._consumers:
                stack.push_async_callback(consumer.close)

    def consumer(self, *streams: str, options: ConsumerOptions | None = None) -> Consumer:
        """A consumer of these streams, or of those in the URL; `async with` connects it."""
        given = ConsumerOptions() if options is None else options
        chosen = self._with_query(arguments.options("options", given, ConsumerOptions))
        names = tuple(dict.fromkeys(streams or self.url.keys or ()))
        driver = self._driver
        validate(driver.backend, driver.unsupported, names, chosen)
        stored = None
        if chosen.offsets is not None:
            from ottla.streams.positions import StoredPositions

            stored = StoredPositions(chosen.offsets, consumer_name(chosen))
        consumer = Consumer(
            driver,
            driver.source(names, chosen, stored),
            names,
            chosen,
            stored=stored,
            dead_letters=self.producer,
        )
        # Those that were closed are forgotten, so that a streamer can make any number.
        self._consumers = [
            one for one in self._consumers if one.state is not ConsumerState.CLOSED
        ] + [consumer]
        return consumer

    def producer(
        self, stream: str | None = None, *, options: ProducerOptions | None = None
    ) -> Producer:
        """A producer for `stream`, or for the only stream in the URL; `async with` connects it."""
        keys = self.url.keys or ()
        anchor = keys[0] if stream is None and len(keys) == 1 else stream
        given = ProducerOptions() if options is None else options
        chosen = arguments.options("options", given, ProducerOptions)
        pipe: Pipe | None = None

        def shared() -> Pipe:
            nonlocal pipe
            if pipe is None or pipe.closed:
                pipe = make_pipe(self._driver.sink(chosen), chosen)
            return pipe

        producer = Producer(shared, anchor, self._driver)
        self._producers = [one for one in self._producers if not one.closed] + [producer]
        return producer

    def _with_query(self, options: ConsumerOptions) -> ConsumerOptions:
        for name, value in self.url.query:
            if name == "config":
                continue  # of the connection
            try:
                if name == "group":
                    options = replace(options, group=value)
                elif name == "mode":
                    options = replace(options, mode=Mode(value))
                else:
                    options = replace(options, reset=Reset(value))
            except ValueError as error:
                raise UrlError(f"{name}={value} in a URL's query: {error}") from None
        return options


def connect(
    url: str,
    options: ConnectOptions | OneBackendOptions | None = None,
    *,
    security: Security | None = None,
) -> Streamer:
    """A streamer for a URL; `async with` connects it.

    Options of one backend may be given alone: `connect(url, FileOptions(...))`. `security` is for
    kafka URLs, the same as `KafkaOptions(security=...)`; a URL may name a file with it instead:
    `kafka://HOST:PORT/orders?config=client.properties`.
    """
    match options:
        case None:
            chosen = ConnectOptions()
        case ConnectOptions():
            chosen = options
        case KafkaOptions():
            chosen = ConnectOptions(kafka=options)
        case RedisOptions():
            chosen = ConnectOptions(redis=options)
        case FileOptions():
            chosen = ConnectOptions(file=options)
        case StdioOptions():
            chosen = ConnectOptions(stdio=options)
        case _:
            raise ConfigError(
                f"connect takes ConnectOptions or those of one backend, not "
                f"{type(options).__name__}; options of consumers and producers go to "
                "streamer.consumer and streamer.producer"
            )
    arguments.text("url", url)
    parsed = parse(url)
    checked = arguments.options("options", chosen, ConnectOptions)
    return Streamer(parsed, _with_security(parsed, checked, security))


def _with_security(
    url: StreamUrl, options: ConnectOptions, security: Security | None
) -> ConnectOptions:
    """The options with the security of the URL's file, or of the argument."""
    config = dict(url.query).get("config")
    if config is None and security is None:
        return options
    if url.scheme != "kafka":
        given = "security" if config is None else "?config="
        raise ConfigError(f"{given} is for kafka:// URLs, not for {url.scheme}://")
    from ottla.client.errors import ClientError
    from ottla.client.security import Security

    found = [security, options.kafka.security if options.kafka is not None else None]
    if config is not None:
        try:
            found.append(Security.from_properties(config))
        except ClientError as error:
            raise ConfigError(f"?config={config} of the URL: {error}") from error
    [chosen, *more] = [one for one in found if one is not None]
    if not isinstance(chosen, Security):
        raise InvalidType(f"security is an ottla.Security, not {type(chosen).__name__}")
    if more:
        raise ConfigError("security is given twice: by argument, option or ?config=; give it once")
    return replace(options, kafka=replace(options.kafka or KafkaOptions(), security=chosen))
