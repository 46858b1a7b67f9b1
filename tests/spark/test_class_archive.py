"""Java makes and uses an archive of classes, and starts without one that is damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_SECONDS: Final = 240.0
# The JVM of a session, without the session: it loads fewer classes, and sooner.
PROGRAM: Final = """
import json, sys
from pathlib import Path
from pyspark import SparkContext
from ottla.spark.session import local_settings, profile, start_jvm

start_jvm(local_settings({**profile(), **json.loads(sys.argv[1])}))
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
version = SparkContext._gateway.jvm.java.lang.System.getProperty("java.version")
files = {line.split()[-1] for line in maps.splitlines() if ".jsa" in line}
print(json.dumps([version, sorted(files)]))
"""


def started(cache: Path, **settings: str) -> tuple[list[str], str]:
    """The archives that a new JVM has mapped, and all that was printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(settings)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    *before, line = done.stdout.splitlines()
    version, maps = json.loads(line)
    assert version
    return maps, "\n".join(before) + done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which a session has left its archive."""
    cache = tmp_path_factory.mktemp("cache")
    maps, _ = started(cache)
    directory = cache / "ottla" / "spark"
    assert not any(str(directory) in one for one in maps)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(directory.glob("*.jsa")):
        assert time.monotonic() < deadline, list(directory.iterdir())
        time.sleep(0.1)
    return cache


def test_the_second_session_has_the_archive_of_the_first(cache: Path) -> None:
    [archive] = (cache / "ottla" / "spark").glob("*.jsa")
    maps, _ = started(cache)
    assert str(archive) in maps


def test_a_session_can_do_without(cache: Path) -> None:
    maps, _ = started(cache, **{"spark.ottla.classArchive": "false"})
    assert not any(str(cache) in one for one in maps)


@pytest.mark.parametrize("damage", ["cut", "emptied", "of something else"])
def test_a_damaged_archive_is_passed_over_without_a_word(
    cache: Path, damage: str, tmp_path: Path
) -> None:
    [archive] = (cache / "ottla" / "spark").glob("*.jsa")
    directory = tmp_path / "ottla" / "spark"
    directory.mkdir(parents=True)
    whole = archive.read_bytes()
    part = {"cut": whole[: len(whole) // 2], "emptied": b"", "of something else": bytes(4096)}
    (directory / archive.name).write_bytes(part[damage])
    maps, said = started(tmp_path)
    assert str(directory / archive.name) not in maps
    assert "shared" not in said.lower()
