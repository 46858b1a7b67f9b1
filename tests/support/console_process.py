"""`ottla console` as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY: Final = "ottla console ready: "


@contextmanager
def console_process(
    directory: Path, bootstrap: str, *options: str, settings: str = ""
) -> Iterator[tuple[str, int]]:
    """Its URL and its process id; `settings` is the text of its console.toml."""
    file = directory / "console.toml"
    file.write_text(settings)
    given = ["--bootstrap", bootstrap, "--listen", "127.0.0.1:0", "--config", str(file)]
    command = [sys.executable, "-m", "ottla.cli", "console", *given]
    env = {key: value for key, value in os.environ.items() if not key.startswith("OTTLA_")}
    process = subprocess.Popen(
        [*command, "--state", str(directory / "state"), *options],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), line
        yield line.removeprefix(READY).strip(), process.pid
    finally:
        process.terminate()
        process.communicate(timeout=30)
