"""Real servers for tests: Redis and PostgreSQL, each in a temporary directory of its own.

Redis listens on a free port of loopback, PostgreSQL on a Unix socket only. They are started when a
test of the session first asks for them and stopped by their process id. Where a server's program
is not installed the test skips and says what to install; `make services` does it where it may.

Apache Kafka comes from Maven and is one for the whole run (see tests/support/shared_kafka.py).

tests/conftest.py names this module as a plugin, so every test may ask for `redis_server`,
`postgres_server` and `apache_bootstrap`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATIENCE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
POSTGRES_HOMES: Final = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt/postgresql")
UNPRIVILEGED_USERS: Final = ("postgres", "nobody")
"""Who runs PostgreSQL when the tests run as root, which it refuses."""


class ServerMissing(Exception):
    """A server's program is not installed; the text says what to install."""


class ServerFailed(Exception):
    """A server did not start; the text is the end of its log."""


@dataclass(frozen=True)
class RedisServer:
    host: str
    port: int
    directory: Path

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"


@dataclass(frozen=True)
class PostgresServer:
    socket_directory: Path
    user: str = "ottla"
    database: str = "postgres"

    @property
    def url(self) -> str:
        return f"postgresql:///{self.database}?host={self.socket_directory}&user={self.user}"


@contextlib.contextmanager
def running_redis(*options: str) -> Iterator[RedisServer]:
    """A Redis without persistence; `options` are appended to its command line."""
    program = shutil.which("redis-server")
    if program is None:
        raise ServerMissing("redis-server is not installed: `make services` or your packages do it")
    with _temporary_directory("ottla-redis-") as directory:
        server = RedisServer("127.0.0.1", free_port(), directory)
        command = [program, "--bind", server.host, "--port", str(server.port), "--dir"]
        command += [str(directory), "--save", "", "--appendonly", "no", *options]
        with _running(command, directory / "log") as process:
            _wait(process, directory / "log", lambda: _redis_answers(server))
            yield server


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL cluster on a Unix socket; its superuser needs no password."""
    initdb, postgres = (_postgres_program(name) for name in ("initdb", "postgres"))
    # A socket's path may have about 100 bytes, so it is kept short.
    with _temporary_directory("ottla-pg-") as directory:
        as_user = _unprivileged(directory)
        data, log = directory / "data", directory / "log"
        server = PostgresServer(directory)
        make = [*as_user, initdb, "-D", str(data), "-U", server.user, "-A", "trust"]
        made = subprocess.run(
            [*make, "-E", "UTF8", "--no-sync", "--locale=C"],
            capture_output=True,
            text=True,
            cwd=directory,
            check=False,
        )
        if made.returncode != 0:
            raise ServerFailed(made.stderr)
        command = [*as_user, postgres, "-D", str(data), "-k", str(directory)]
        command += ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=50"]
        with _running(command, log) as process:
            _wait(process, log, lambda: _postgres_accepts(directory, log))
            yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for the session: use stream names of your own."""
    with _or_skip(), running_redis() as server:
        yield server


@pytest.fixture(scope="session")
def apache_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Apache Kafka for all workers of the run: use `tests.support.names.fresh` for names."""
    from tests.support.jvm import why_no_jvm
    from tests.support.shared_kafka import shared_kafka

    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    common = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        common = common.parent  # each worker has a directory of its own below it
    common /= "apache-kafka"
    common.mkdir(exist_ok=True)
    with shared_kafka(common) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the session: use tables of your own."""
    with _or_skip(), running_postgres() as server:
        yield server


@contextlib.contextmanager
def _or_skip() -> Iterator[None]:
    try:
        yield
    except ServerMissing as missing:
        pytest.skip(str(missing))


@contextlib.contextmanager
def _temporary_directory(prefix: str) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, stopped at the end: both servers take SIGINT as "now, but orderly"."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], log: Path, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServerFailed(log.read_text(errors="replace")[-4000:])
        time.sleep(POLL_SECONDS)


def _redis_answers(server: RedisServer) -> bool:
    try:
        with socket.create_connection((server.host, server.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64) == b"+PONG\r\n"
    except OSError:
        return False


def _postgres_accepts(directory: Path, log: Path) -> bool:
    ready = b"database system is ready to accept connections" in log.read_bytes()
    return ready and (directory / ".s.PGSQL.5432").exists()


def _postgres_program(name: str) -> str:
    if found := shutil.which(name):
        return found
    for home in POSTGRES_HOMES:
        for candidate in sorted(Path(home).glob(f"*/bin/{name}"), reverse=True):
            return str(candidate)
    raise ServerMissing("PostgreSQL is not installed: `make services` or your packages do it")


def _unprivileged(directory: Path) -> list[str]:
    """How to start a program as somebody other than root, who then owns the directory."""
    if os.geteuid() != 0:
        return []
    for name in UNPRIVILEGED_USERS:
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            break
    else:
        raise ServerMissing("PostgreSQL refuses to run as root: add a user named postgres")
    if shutil.which("setpriv") is None:
        raise ServerMissing("PostgreSQL refuses to run as root: install setpriv (util-linux)")
    os.chown(directory, user.pw_uid, user.pw_gid)
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, "--"]
