"""A reader at a desk: types what a page of the documentation says, block by block, in order.

The language of a block says what it is. `console` is typed into a shell and `python` is a program
or a session of `python -m asyncio`: both are run, all of them, or the page's test fails. Others are
shown only: `text` is output, `bash` are commands of other programs, `py` is a part of a program,
and there are files (`properties`, `toml`, `yaml`). tests/docs/test_blocks.py counts the second and
third kind.

Programs find the real `ottla` and `python` first in PATH. Only addresses, and names that stand for
the reader's own, are replaced: `SHOWN` has all of them.

- Lines that begin with `$ ` are commands, if a block has such; the others are then output.
- A command that serves until it is stopped runs in the background from then on, and is awaited
  until it says that it is ready. Another one of its kind stops it.
- `pip install` is not run: the extras that it names must exist. tests/e2e/test_wheel.py installs.
- Prompts are answered by `answers`, at a terminal.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support.ports import free_base, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

ROOT: Final = Path(__file__).parents[2]
TYPED: Final = ("console", "python")
NEXT: Final = "the next block of the page"
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Commands that serve, and what they print when they do.
SERVERS: Final = {
    r"ottla broker\b": "ottla broker ready: ",
    r"ottla console( --|$)": "ottla console ready: ",
    r"ottla registry run\b": "ottla registry ready: ",
    r"ottla relay\b": "",
    r"ottla share-consume\b": "",
    r"ottla table run(?!.*--once)": "",
    r"ottla top --json": "{",
}
NODES: Final = 4  # the most that a page starts
# Long for any machine under load; who needs it is stuck.
PATIENCE_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.05
# Runs a file as `python -m asyncio` would: with `await` at the top level.
SESSION: Final = """
import ast, asyncio, inspect, sys
for path in sys.argv[1:]:
    code = compile(open(path).read(), path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, globals())
    if inspect.iscoroutine(found):
        asyncio.run(found)
"""


# Runs a command at a terminal, where prompts read, and answers each prompt.
TERMINAL: Final = """
import os, pty, sys
line, *answers = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.execvp("sh", ["sh", "-ec", line])
end = b""
while True:
    try:
        said = os.read(terminal, 4096)
    except OSError:  # Linux says so when the last process at the terminal has ended
        break
    if not said:
        break
    sys.stdout.buffer.write(said)
    # Not at the colon: what is typed before the blank is thrown away, when echoing is turned off.
    end = (end + said)[-2:]
    if end == b": " and answers:
        os.write(terminal, answers.pop(0).encode() + b"\\n")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
# Tests that run in the background ignore Ctrl-C, and so would what they start.
LISTENING: Final = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp("sh", ["sh", "-c", "exec " + sys.argv[1]])
"""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What is typed into a shell, one command each."""
        lines = self.text.replace("\\\n", "").splitlines()
        typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return typed or [line for line in lines if line.strip()]


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page with a language, in order."""
    path = ROOT / "README.md" if page == "README" else ROOT / "docs" / f"{page}.md"
    text = path.read_text()
    return [
        Block(page, text[: found.start()].count("\n") + 1, found[1], found[2])
        for found in BLOCK.finditer(text)
    ]


class Desk:
    """Left without an error, it checks that every block was typed."""

    def __init__(
        self,
        page: str,
        directory: Path,
        shown: Mapping[str, str] | None = None,
        *,
        typed: Sequence[str] = TYPED,
    ) -> None:
        self.directory = directory
        self._all = blocks_of(page)
        self._blocks = deque(one for one in self._all if one.language in typed)
        self._servers: dict[str, Server] = {}
        base = free_base(NODES)
        secured, registry, console, beside, metrics, other = free_ports(6)
        self.bootstrap = f"127.0.0.1:{base}"
        self.registry = f"http://127.0.0.1:{registry}"
        self.console = f"http://127.0.0.1:{console}"
        self._shown = {
            **(shown or {}),
            # Addresses of this machine.
            "127.0.0.1:9092": self.bootstrap,
            "http://127.0.0.1:8081": self.registry,
            "--metrics-port 9100": f"--metrics-port {metrics}",
            "0.0.0.0:9093": f"127.0.0.1:{secured}",
            "ottla console\n": f"ottla console --listen 127.0.0.1:{console}\n",
            "ottla console --b": f"ottla console --listen 127.0.0.1:{console} --b",
            "ottla broker --console": f"ottla broker --console-listen 127.0.0.1:{beside}",
            "ottla registry run": f"ottla registry run --listen 127.0.0.1:{other}",
            # Machines that stand for the reader's own.
            "broker.example.com:9093": f"localhost:{secured}",
            "broker.example.com": "localhost",
            "kafka-1:9092,kafka-2:9092": self.bootstrap,
            "kafka:9092": self.bootstrap,
            "10.0.0.5:9092": self.bootstrap,
            "10.1.0.5:9092": self.bootstrap,
            **(shown or {}),
        }
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OTTLA_BOOTSTRAP": self.bootstrap,
            "OTTLA_LISTENERS": f"PLAINTEXT://{self.bootstrap}",
            "PYTHONUNBUFFERED": "1",
            "BROWSER": "true",  # who opens a page opens nothing
        }

    def shell(self, *answers: str) -> str:
        """Type the next block into a shell; returns what its commands print."""
        block = self._next("console")
        text = self.here(block.text)
        return "".join(self._run(line, answers) for line in block._replace(text=text).commands)

    def program(self, name: str = "program.py") -> str:
        """Save the next block, a program, run it and return what it prints."""
        return self._python(self.save(name))

    def session(self, *parts: str) -> str:
        """Type into one session: `NEXT` is the page's next block, others the reader's own lines."""
        files = []
        for number, part in enumerate(parts or (NEXT,)):
            name = f"session-{number}.py"
            files.append(self.save(name) if part == NEXT else self.write(name, part))
        return self._python(self.write("session.py", SESSION), *files)

    def interrupted(self, name: str, *, lines: int) -> str:
        """Save the next block, run it, and press Ctrl-C once it has printed so many lines."""
        server = self._start(f"python {self.save(name)}", name)
        wait_for(lambda: server.said.count("\n") >= lines, name)
        return server.stop(signal.SIGINT)

    def tests(self, *, blocks: int = 1) -> str:
        """Save the next blocks as a file of tests and run it."""
        text = "\n\n".join(self.here(self._next("python").text) for _ in range(blocks))
        file = self.write("test_page.py", text)
        return self._ran([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file])

    def save(self, name: str, language: str = "python") -> Path:
        """Save the next block of a language to a file."""
        return self.write(name, self.here(self._next(language).text))

    def pass_over(self, why: str) -> None:
        """Leave out the next block, which another test runs."""
        assert why
        self._blocks.popleft()

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def run(self, command: str) -> str:
        """Type a command that the page tells in a sentence."""
        return self._run(self.here(command), ())

    def shown(self, language: str) -> str:
        """The first block of a language that is not typed, such as a file."""
        return self.here(next(one.text for one in self._all if one.language == language))

    def here(self, text: str) -> str:
        """The text with the addresses and names of this run."""
        for name, own in self._shown.items():
            text = text.replace(name, own)
        return text

    def call(self, name: str, own: str) -> None:
        """From now on a name of the page stands for one of this run."""
        self._shown[name] = own

    def said(self, command: str) -> str:
        """What a server has printed so far."""
        return self._servers[command].said

    def stop(self, command: str) -> str:
        """Press Ctrl-C where a server runs; returns what it has printed."""
        return self._servers.pop(command).stop(signal.SIGINT)

    def _next(self, language: str) -> Block:
        block = self._blocks.popleft()
        assert block.language == language, block
        return block

    def _run(self, line: str, answers: tuple[str, ...]) -> str:
        if line.startswith("pip install"):
            _check_extras(line)
            return ""
        if line.startswith("export "):
            words = shlex.split(line)[1:]
            self.environment |= dict(word.split("=", 1) for word in words)
            return ""
        for pattern, ready in SERVERS.items():
            found = re.match(pattern, line)
            if found is not None and "--until-end" not in line:
                kind = found[0].removesuffix(" --")
                if kind in self._servers:
                    self.stop(kind)
                self._servers[kind] = server = self._start(line, kind)
                return server.wait_for(ready)
        if answers:
            return self._ran([sys.executable, "-c", TERMINAL, line, *answers])
        return self._ran(["sh", "-ec", line])

    def _start(self, line: str, name: str) -> Server:
        return Server(line, self.directory, self.environment, name)

    def _python(self, *arguments: Path) -> str:
        return self._ran([sys.executable, *map(str, arguments)])

    def _ran(self, command: list[str | Path]) -> str:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        told = {kind: server.said for kind, server in self._servers.items()}
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}\n{told}"
        return done.stdout

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers.values():
            server.stop(signal.SIGTERM)
        assert error is not None or not self._blocks, f"nobody types {list(self._blocks)}"


class Server:
    """A command that runs until it is stopped; what it prints goes to a file."""

    def __init__(
        self, line: str, directory: Path, environment: Mapping[str, str], name: str
    ) -> None:
        self._line = line
        self._file = directory / f"{name.replace(' ', '-')}.log"
        with self._file.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LISTENING, line],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._file.read_text()

    def wait_for(self, text: str) -> str:
        """Return what it has printed once that has a text."""
        wait_for(lambda: text in self.said or self._process.poll() is not None, self._line)
        assert self._process.poll() is None, f"{self._line} ended: {self.said}"
        return self.said

    def stop(self, number: signal.Signals) -> str:
        self._process.send_signal(number)
        try:
            status = self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        # A program that is still starting, or has no answer to Ctrl-C, dies of the signal; Python
        # that meets it while it imports `site` ends with status 1.
        is_starting = status == 1 and "Failed to import the site module" in self.said
        ended = f"{self._line} ended with {status}: {self.said}"
        assert status in (0, 130, -number) or is_starting, ended
        return self.said


def wait_for(done: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(LOOK_SECONDS)


def _check_extras(line: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"(?:ottla|\.)\[([\w,]+)\]", line)
    assert {one for each in named for one in each.split(",")} <= project[
        "optional-dependencies"
    ].keys()
