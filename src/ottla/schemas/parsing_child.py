"""Parse and compare schemas in a process of their own, so that a hostile one costs 2 s at most.

Rules:

- The process is started by the first request and handles one at a time. It is ended when there was
  none for `IDLE_SECONDS`, and ends itself when its pipe closes.
- Before each request it sets two alarms that end it: for its own processor time once the libraries
  are loaded, and for the time on the wall, which a busy machine makes long. A thread would not do:
  it cannot be ended, and a regular expression holds the interpreter's lock.
- What ends the process, by time, memory or a fault of a library, makes the schema of the request
  invalid. The next request starts a new process.
- A message is a list of byte strings: their number, their sizes, their contents. It has trees as
  they are (`Parsed.encoded`), so that the event loop's thread never waits for one to be decoded.
- Pipes are read and written by one thread, never by the event loop.
- Files that a library needs are in a directory of the process, which is removed with it: an alarm
  leaves no time to do so.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from ottla.schemas.compatibility import Difference, Level, check
from ottla.schemas.model import (
    InvalidSchema,
    Kind,
    Parsed,
    Schema,
    SchemaError,
    SchemaTooLarge,
    encode,
)
from ottla.schemas.parsing import check_limits, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODULE = "ottla.schemas.parsing_child"
SECONDS = 2.0
"""Of processor time, for one schema or one comparison: real ones take milliseconds."""
WALL_SECONDS = 30.0
"""For a request, the loading of libraries included. They take half a second; a busy machine is
slower, and that is no fault of the schema."""
IDLE_SECONDS = 60.0
"""Schemas come in bursts. The process holds some 45 MB meanwhile."""
MEMORY = 2**30
"""Bytes of address space. Schemas of 4 MiB take 90 to 150 MB."""
MAX_MESSAGE = 2**28
"""Bytes of all schemas that one is compared with. They are decoded one after the other."""
VARIABLES = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "TMPDIR",
)
"""Of the environment; secrets may stand in others."""


class ParsingChild:
    """Parses and compares as `parsing.parse` and `compatibility.check` do, elsewhere."""

    def __init__(self, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._thread = ThreadPoolExecutor(1, "ottla-parsing-child")
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch = ""
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None

    async def parse(self, schema: Schema, resolved: Mapping[str, str]) -> Parsed:
        """The parsed schema; raises InvalidSchema, also for one that takes too long."""
        check_limits(schema, resolved)
        parts = [encode(part) for pair in resolved.items() for part in pair]
        request = [b"parse", schema.kind.encode(), schema.text.encode(), *parts]
        canonical, normalized, encoded = await self._ask(request)
        return Parsed(schema.kind, canonical.decode(), normalized.decode(), encoded)

    async def check(
        self, kind: Kind, level: Level, new: Parsed, existing: Sequence[Parsed]
    ) -> list[Difference]:
        """Why `new` may not follow `existing`, oldest first; empty: it may."""
        if level is Level.NONE or not existing:
            return []
        against = existing if level.is_transitive else existing[-1:]
        parts = [part for one in (new, *against) for part in (one.kind.encode(), one.encoded)]
        if sum(map(len, parts)) > MAX_MESSAGE:
            raise SchemaTooLarge(
                f"the versions to compare with have more than {MAX_MESSAGE // 2**20} MiB"
            )
        found = await self._ask([b"check", kind.encode(), level.encode(), *parts])
        texts = [part.decode() for part in found]
        return [Difference(*texts[start : start + 3]) for start in range(0, len(texts), 3)]

    async def close(self) -> None:
        """End the process. Nothing can be asked afterwards."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown(wait=False)

    async def _ask(self, request: list[bytes]) -> list[bytes]:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._requests += 1
        try:
            answer = await asyncio.shield(
                loop.run_in_executor(self._thread, self._exchange, request)
            )
        finally:
            self._requests -= 1
            if not self._requests:
                self._timer = loop.call_later(self._idle_seconds, self._is_idle)
        word, *parts = answer
        if word == b"done":
            return parts
        message, path = (part.decode() for part in parts)
        if word == b"failed":
            raise SchemaError(message)
        raise (SchemaTooLarge if word == b"too large" else InvalidSchema)(message, path)

    def _is_idle(self) -> None:
        self._thread.submit(self._end)

    # -- the thread

    def _exchange(self, request: list[bytes]) -> list[bytes]:
        try:
            process = self._running()
        except OSError as error:  # no memory, or too many processes, for a while
            return [b"failed", f"the parser cannot be started: {error}".encode(), b""]
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, request)
            answer = _read(process.stdout)
        except (OSError, EOFError):
            answer = None
        if answer is not None:
            return answer
        code = self._end()
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            return [b"invalid", f"it takes more than {SECONDS:g} s to read".encode(), b""]
        return [b"invalid", f"the parser failed on it (exit status {code})".encode(), b""]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end()  # somebody ended it; that is not the next schema's fault
        if self._process is None:
            self._scratch = tempfile.mkdtemp(prefix="ottla-schemas-")
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, self._scratch],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # compilers warn there
                env={name: os.environ[name] for name in VARIABLES if name in os.environ},
                process_group=0,  # Ctrl-C comes to the parent alone
            )
        return self._process

    def _end(self) -> int:
        """End the process, which holds nothing; returns its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what was not written has no reader any more
                if pipe is not None:
                    pipe.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        return code


def _write(pipe: IO[bytes], parts: Sequence[bytes]) -> None:
    pipe.write(struct.pack(f">I{len(parts)}Q", len(parts), *map(len, parts)))
    pipe.writelines(parts)
    pipe.flush()


def _read(pipe: IO[bytes]) -> list[bytes]:
    (count,) = struct.unpack(">I", _exactly(pipe, 4))
    sizes = struct.unpack(f">{count}Q", _exactly(pipe, 8 * count))
    return [_exactly(pipe, size) for size in sizes]


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


# -- the process


def main() -> None:
    """Answer requests until the pipe closes."""
    _limit_memory()
    tempfile.tempdir = sys.argv[1]
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints does not answer
    while True:
        try:
            request = _read(requests)
        except EOFError:
            shutil.rmtree(sys.argv[1], ignore_errors=True)  # the parent may be gone
            return
        signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
        answer = _answer(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(answers, answer)


def _limit_memory() -> None:
    import resource

    with suppress(ValueError, OSError):  # a lower limit holds already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _answer(request: list[bytes]) -> list[bytes]:
    try:
        kind = Kind(request[1].decode())
        _load(kind)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        return [b"done", *(_parsed if request[0] == b"parse" else _checked)(kind, request[2:])]
    except ImportError as error:
        message = f"schemas need {error.name}; install it with: pip install 'ottla[schemas]'"
        return [b"failed", message.encode(), b""]
    except SchemaTooLarge as error:
        return [b"too large", error.message.encode(), error.path.encode()]
    except InvalidSchema as error:
        return [b"invalid", error.message.encode(errors="replace"), error.path.encode()]
    except MemoryError:
        raise  # ends the process
    except Exception as error:  # noqa: BLE001  # libraries meet hostile input here
        message = f"the parser failed on it: {type(error).__name__}: {error}"[:500]
        return [b"invalid", message.encode(errors="replace"), b""]


def _load(kind: Kind) -> None:
    """Load the libraries of a format."""
    if kind is Kind.AVRO:
        import fastavro  # noqa: F401
    elif kind is Kind.JSON:
        import jsonschema  # noqa: F401
    else:
        import google.protobuf.descriptor_pb2  # noqa: F401
        import grpc_tools._protoc_compiler  # noqa: F401


def _parsed(kind: Kind, parts: list[bytes]) -> list[bytes]:
    text, *rest = (part.decode() for part in parts)
    found = parse(Schema(kind, text), dict(zip(rest[::2], rest[1::2], strict=True)))
    return [found.canonical.encode(), found.normalized.encode(), found.encoded]


def _checked(kind: Kind, parts: list[bytes]) -> list[bytes]:
    level, *rest = parts
    new, *existing = (
        Parsed(Kind(one.decode()), "", "", encoded)
        for one, encoded in zip(rest[::2], rest[1::2], strict=True)
    )
    found = check(kind, Level(level.decode()), new, existing)
    return [
        text.encode(errors="replace") for one in found for text in (one.kind, one.path, one.message)
    ]


if __name__ == "__main__":
    main()
