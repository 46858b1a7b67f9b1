"""Kafka's command-line tools, and our own programs, in a JVM that is kept; see jvm/Tools.java."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.jvm import (
    QUICK_START,
    java_command,
    needed_classpath,
    own_classpath,
    tool_call,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# The jars with classes that are loaded anew for each run.
TOOL_JARS: Final = ("kafka-tools-*.jar", "kafka_2.13-*.jar")


class JavaTools:
    """Runs one tool at a time; `kept_tools` starts and ends it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self, tool: str, *args: str, bootstrap: str | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """As `jvm.run_tool`, without a limit of time."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        main, *rest = tool_call(tool, *args, bootstrap=bootstrap)
        requests.write(json.dumps({"main": main, "args": rest, "stdin": stdin}) + "\n")
        requests.flush()
        line = answers.readline()
        if not line:
            raise RuntimeError(f"{tool} ended the JVM it ran in")
        answer = json.loads(line)
        return subprocess.CompletedProcess(
            [main, *rest], answer["status"], answer["stdout"], answer["stderr"]
        )


@contextmanager
def kept_tools() -> Iterator[JavaTools]:
    directory = Path(needed_classpath()).parent
    jars = [str(jar) for pattern in TOOL_JARS for jar in sorted(directory.glob(pattern))]
    classpath = own_classpath()
    anew = [classpath.partition(":")[0], *jars]
    command = java_command("Tools", *anew, classpath=classpath, options=QUICK_START)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8") as process:
        try:
            yield JavaTools(process)
        finally:
            process.kill()
