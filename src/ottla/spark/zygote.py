"""Forks Spark's Python processes from one that has imported what they need.

Spark starts seven Python processes for the first batch of a stream, one after the other, and each
takes half a second for imports. A zygote is a process that has these imports behind it: a copy of
it starts in a few milliseconds. It imports while the JVM starts. Rules:

- Spark gets a script as its Python. The script runs `zygote_request`, which hands its arguments,
  environment, directory and standard streams to the zygote, and ends as the copy ends. The copy
  has the words of what it runs, so that `ps` tells what it is.
- If the zygote is gone, or cannot serve the request, `zygote_request` becomes the Python that Spark
  asked for. So it does where variables differ that Python or a library reads when it starts.
- A copy whose request has died gets SIGTERM: Spark ends its processes so.
- The zygote ends with the process that started it, and removes its directory.
- The setting `spark.ottla.zygote` is `true`; with `false` Spark starts its processes itself. So it
  does on other systems than Linux, where libraries do not survive a fork.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.spark.zygote_request import retitle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SETTING: Final = "spark.ottla.zygote"
SOCKET: Final = "socket"
SCRIPT: Final = "python"
LENGTH: Final = struct.Struct(">I")
STREAMS: Final = 3
BACKLOG: Final = 64
MAX_REQUEST: Final = 4 << 20
"""Linux allows arguments and environment of 2 MiB; JSON may double that."""
REQUEST_SECONDS: Final = 10.0
"""A request is sent at once; a client that stops halfway must not hold up the others."""
HASHES: Final = {"PYTHONHASHSEED": "0"}
"""As Spark sets it for its workers, so that they agree about hashes."""
# Read when Python or a library starts. Spark gives a task one thread of OpenMP.
READ_AT_START: Final = ("PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "LD_LIBRARY_PATH")
PREFIXES: Final = ("OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "ARROW_", "MALLOC_")
THREADS: Final = "OMP_NUM_THREADS"
PRELOADED: Final = (
    *("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.plan_data_source_read"),
    *("pyspark.sql.worker.lookup_data_sources", "pyspark.sql.worker.create_data_source"),
    *("pyspark.sql.worker.write_into_data_source", "pyspark.sql.worker.commit_data_source_write"),
    *("pyspark.sql.worker.data_source_pushdown_filters", "pyspark.cloudpickle"),
    *("pyspark.sql.streaming.python_streaming_source_runner", "pyarrow", "numpy"),
    *("ottla.spark.source", "ottla.spark.log.reading", "ottla.spark.share.backend"),
    *("ottla.spark.share.reading", "ottla.client.producer.arrow", "ottla.client.share.bulk"),
)


class Request(NamedTuple):
    """What Spark wants to run."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    streams: list[int]


# -- in the process of the session -----------------------------------------------------------------


class Zygote:
    """A zygote that is starting; it ends when this process does."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-zygote-"))
        self.python = self._directory / SCRIPT
        request = Path(__file__).with_name("zygote_request.py")
        words = (sys.executable, "-I", "-S", str(request), str(self._directory / SOCKET))
        self.python.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        self.python.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listening:
            # It listens from the start: a request waits for the imports.
            listening.bind(str(self._directory / SOCKET))
            listening.listen(BACKLOG)
            number = listening.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(number), str(self._directory)],
                env={THREADS: "1", **os.environ, **HASHES, "PYTHONUNBUFFERED": "YES"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(number,),
                process_group=0,  # Ctrl-C is for the process of the session alone
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def lives(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """End it, also while it imports; copies go on."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        shutil.rmtree(self._directory, ignore_errors=True)


_OF_PROCESS: dict[int, Zygote] = {}


def start_zygote(settings: Mapping[str, str]) -> None:
    """Start the zygote of this process, if the settings want one and there is none."""
    if not is_wanted(settings) or worker_python() != sys.executable:
        return
    with suppress(OSError):
        _OF_PROCESS[os.getpid()] = Zygote()
        atexit.register(_end_zygote)


def _end_zygote() -> None:
    zygote = _OF_PROCESS.pop(os.getpid(), None)  # a forked child has none
    if zygote is not None:
        zygote.end()


def is_wanted(settings: Mapping[str, str]) -> bool:
    """Whether a session with these settings uses a zygote."""
    return settings.get(SETTING, "true").lower() != "false" and _is_possible()


def worker_python() -> str:
    """The Python that Spark is to start: the zygote's script, or this Python."""
    zygote = _OF_PROCESS.get(os.getpid())
    return str(zygote.python) if zygote is not None and zygote.lives() else sys.executable


def _is_possible() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


# -- in the zygote ---------------------------------------------------------------------------------


class _Server:
    """Takes requests and forks; in a copy `serve` returns its request."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        self._clients: dict[socket.socket, tuple[int, int]] = {}
        """The copy of each client that waits: its number and its descriptor."""

    def serve(self) -> Request | None:
        """None when the process of the session has ended."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj is self._listening:
                    request = self._take()
                    if request is not None:
                        return request
                elif key.data is None:
                    self._request_died(key.fileobj)
                else:
                    self._copy_ended(key.data)

    def _take(self) -> Request | None:
        client, _ = self._listening.accept()
        try:
            client.settimeout(REQUEST_SECONDS)
            request = received(client)
            client.settimeout(None)
        except (OSError, ValueError):
            client.close()  # it becomes the Python itself
            return None
        number = _forked() if can_serve(request.environment, os.environ) else None
        if number == 0:
            client.close()
            self._close()
            return request
        _close_all(request.streams)
        if number is None:
            client.close()
            return None
        descriptor = os.pidfd_open(number)
        with suppress(OSError):
            client.sendall(LENGTH.pack(number))
        self._clients[client] = number, descriptor
        self._selector.register(client, selectors.EVENT_READ)
        self._selector.register(descriptor, selectors.EVENT_READ, client)
        return None

    def _request_died(self, client: Any) -> None:
        if client not in self._clients:
            return  # its copy ended at the same time
        number, _ = self._clients[client]
        self._selector.unregister(client)
        with suppress(OSError):
            os.kill(number, signal.SIGTERM)

    def _copy_ended(self, client: socket.socket) -> None:
        number, descriptor = self._clients.pop(client)
        _, status = os.waitpid(number, 0)
        self._selector.unregister(descriptor)
        with suppress(KeyError):
            self._selector.unregister(client)
        os.close(descriptor)
        with client, suppress(OSError):
            client.sendall(LENGTH.pack(os.waitstatus_to_exitcode(status) & 0xFF))

    def _close(self) -> None:
        """Close what a copy must not keep."""
        self._selector.close()
        self._listening.close()
        for client, (_, descriptor) in self._clients.items():
            client.close()
            os.close(descriptor)


def _forked() -> int | None:
    """The number of the copy, 0 in the copy itself, None if the system has no room for one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of libraries are no threads of Python
        try:
            return os.fork()
        except OSError:
            return None


def received(client: socket.socket) -> Request:
    """One request; its streams come with the first byte."""
    numbers = array.array("i")
    room = socket.CMSG_LEN(STREAMS * numbers.itemsize)
    head, ancillary, _, _ = client.recvmsg(LENGTH.size, room)
    for level, kind, some in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(some[: len(some) - len(some) % numbers.itemsize])
    streams = list(numbers)
    try:
        head += _exactly(client, LENGTH.size - len(head))
        [length] = LENGTH.unpack(head)
        if length > MAX_REQUEST or len(streams) != STREAMS:
            raise ValueError(f"{length} bytes with {len(streams)} streams")
        told = json.loads(_exactly(client, length))
        return Request(told["arguments"], told["environment"], told["directory"], streams)
    except BaseException:
        _close_all(streams)
        raise


def _exactly(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        some = client.recv(count - len(found))
        if not some:
            raise ValueError("the request ends early")
        found += some
    return found


def can_serve(asked: Mapping[str, str], here: Mapping[str, str]) -> bool:
    """Whether variables that count when a process starts are those that it was started with."""
    names = {name for name in (*asked, *here) if name in READ_AT_START or name.startswith(PREFIXES)}
    # What plans is told nothing of threads, and uses none.
    return all(asked.get(name, here.get(name)) == here.get(name) for name in names)


def search_path(asked: Mapping[str, str], directory: str, here: Iterable[str]) -> list[str]:
    """`sys.path` as `python -m` would make it; `here` is that of the installation."""
    given = [one for one in asked.get("PYTHONPATH", "").split(os.pathsep) if one]
    first = [directory, *(os.path.join(directory, one) for one in given)]  # noqa: PTH118  # as Python does
    return list(dict.fromkeys([*first, *here]))


def become(request: Request, installed: Iterable[str]) -> None:
    """Run in a copy what Spark asked for: `python -m MODULE ...`."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
    _close_all(request.streams)
    retitle("python", *request.arguments)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[:] = search_path(request.environment, request.directory, installed)
    importlib.invalidate_caches()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    _, module, *arguments = request.arguments
    sys.argv[:] = ["-m", *arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # it was imported before
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def preload() -> None:
    """Import what Spark's processes import. What is missing they will miss themselves."""
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    random = sys.modules.get("numpy.random")
    if random is not None:  # as `random` does by itself: copies must not draw the same numbers
        os.register_at_fork(after_in_child=random.seed)
    gc.collect()
    gc.freeze()


def _close_all(numbers: Iterable[int]) -> None:
    for number in numbers:
        os.close(number)


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    directory = Path(sys.argv[2])
    own = search_path(os.environ, str(Path.cwd()), ())
    installed = [one for one in sys.path if one not in own]
    # A manager may send it to all processes; a copy that gets it early keeps it until it can end.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    preload()
    request = _Server(listening).serve()
    if request is not None:
        become(request, installed)
        return
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)  # to take apart what was imported takes time


if __name__ == "__main__":
    main()
