"""Connections to Redis: one client for commands, and one connection per reader.

redis-py's defaults do not suit blocking reads: its socket timeout of 5 s is shorter than a wait for
data, and its retries repeat a read whose reply was lost without saying so. A reading connection
therefore has a timeout beyond the blocking time and no retries; the reader recovers by itself.
Commands are not retried either, because an XADD whose answer was lost may have been done.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from redis import exceptions
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError
from redis.utils import HIREDIS_AVAILABLE

from ottla.streams.backends.redis_parser import StreamParser
from ottla.streams.errors import ConnectError, StreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis.asyncio.connection import AbstractConnection

    from ottla.streams.types import RedisOptions

RedisClient: TypeAlias = "Redis | RedisCluster"

DEFAULT_PORT: Final = 6379
READ_MARGIN: Final = 5.0  # seconds that an answer to a blocking read may be late

# How readers are answered: the plain protocol, and without hiredis a parser made for long replies.
READING: Final[dict[str, Any]] = (
    {"protocol": 2} if HIREDIS_AVAILABLE else {"protocol": 2, "parser_class": StreamParser}
)

# Errors that a reader recovers from; the last three come while another server takes over. A failed
# login is a ConnectionError for redis-py, but a retry does not help.
LOST: Final = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    BusyLoadingError,
    OSError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
FATAL: Final = (AuthenticationError,)


@contextmanager
def told_as_ours(what: str) -> Iterator[None]:
    """Raise an error of redis-py as a `StreamError`."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise StreamError(f"Redis could not {what}: {error}") from error


class Link:
    """`client` runs commands; `reading` gives a new connection to the node that holds a key."""

    def __init__(self, settings: dict[str, Any], options: RedisOptions) -> None:
        self._settings = settings
        self.is_cluster = options.cluster
        self.client: RedisClient = self._new_client()

    def _new_client(self) -> RedisClient:
        settings = {**self._settings, "retry": Retry(NoBackoff(), 0)}
        if not self.is_cluster:
            return Redis(**settings)
        settings.pop("db", None)  # a cluster has only one
        return RedisCluster(**settings)

    async def connect(self) -> None:
        """Fail now rather than at the first command."""
        try:
            if isinstance(self.client, RedisCluster):
                await self.client.initialize()
            else:
                await self.client.ping()
        except (*LOST, RedisError) as error:
            await self.close()
            host, port = self._settings["host"], self._settings["port"]
            raise ConnectError(
                f"no connection to Redis at {host}:{port}: {error}; check that the server runs "
                "and that the credentials of the URL are right"
            ) from error

    async def reading(self, key: str, block: float) -> tuple[AbstractConnection, int]:
        """A connection for blocking reads of the key, and the id by which it can be woken."""
        connection = self._connection_to(key)
        connection.socket_timeout = block + READ_MARGIN
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # of redis-py
            await connection.send_command("CLIENT", "ID")
            return connection, int(await connection.read_response())
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    async def wake(self, key: str, client_id: int) -> None:
        """Let a blocking read on that connection return now, as if its time were up."""
        connection = self._connection_to(key)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # of redis-py
            await connection.send_command("CLIENT", "UNBLOCK", client_id)
            await connection.read_response()
        finally:
            await connection.disconnect()

    def _connection_to(self, key: str) -> AbstractConnection:
        if isinstance(self.client, RedisCluster):
            node: Any = self.client.get_node_from_key(key)
            kind, settings = node.connection_class, node.connection_kwargs
        else:
            pool: Any = self.client.connection_pool
            kind, settings = pool.connection_class, pool.connection_kwargs
        # Notices of maintenance are pushed, which the plain protocol has no way to do.
        kept = {name: value for name, value in settings.items() if "maint" not in name}
        made: AbstractConnection = kind(**{**kept, **READING})
        return made

    async def moved(self) -> None:
        """Look again which node holds which slot."""
        if isinstance(self.client, RedisCluster):
            await self.client.aclose()
            await self.client.initialize()

    async def close(self) -> None:
        await self.client.aclose()
