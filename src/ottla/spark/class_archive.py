"""An archive of Spark's classes, with which a session starts in about half of the processor time.

Java can map classes that an earlier process has parsed and verified ("class data sharing"). Rules:

- There is one archive for each Java and Spark, in the user's cache: `ottla/spark/KEY.jsa`, about
  150 MB. Java itself compares it with its own build and with the jars; an archive that does not
  fit, or that is broken, is passed over, and the session starts as it would without.
- The first session that finds none lets Java list the classes that it loads. When its process has
  ended, another one makes the archive from the list: in the background, at the lowest priority.
- An archive appears under its name when it is complete. One process makes it, the others leave it
  to that one. Whatever goes wrong, the next session tries again.
- The setting `spark.ottla.classArchive` is `true`; with `false` none is used and none is made.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTING: Final = "spark.ottla.classArchive"
SUFFIX: Final = ".jsa"
LISTS: Final = ".classes"
FREE_BYTES: Final = 1 << 30
"""Archives are made where the disk has room for several of them."""
EXIT_SECONDS: Final = 60.0
"""A JVM ends within a second of its driver; one that does not is not waited for."""
MAKE_SECONDS: Final = 600.0
"""Making takes 20 s; at the lowest priority on a busy machine far longer."""
UNUSED_SECONDS: Final = 30 * 86_400.0
"""Archives of a Java or Spark that is gone."""
LEFT_SECONDS: Final = 86_400.0
"""Lists and unfinished archives of processes that were killed; those of today may be in use."""
LOWEST_PRIORITY: Final = 19
_VERSION: Final = re.compile(r'JAVA_VERSION="(\d+)')
_LOGS_AOT: Final = 24
"""From this version on Java has `aot` as another name for these messages."""


def is_wanted(settings: Mapping[str, str]) -> bool:
    """Whether a session with these settings uses an archive."""
    return settings.get(SETTING, "true").lower() != "false" and hasattr(os, "fork")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of a Java and a Spark; the file may not be there yet."""

    java: Path
    version: int
    file: Path

    @classmethod
    def of(cls, java: Path, spark: Path) -> ClassArchive | None:
        """None where Java does not say what it is, or the cache cannot be written."""
        try:
            release = (java / "release").read_text()
            jars = (spark / "jars").stat()
        except OSError:
            return None
        found = _VERSION.search(release)
        if found is None:
            return None
        told = f"{java.resolve()}\n{release}\n{spark.resolve()}\n{jars.st_mtime_ns}"
        key = hashlib.sha256(told.encode()).hexdigest()[:16]
        directory = cache_directory()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError:
            return None
        return cls(java, int(found[1]), directory / f"{key}{SUFFIX}")

    def options(self) -> list[str]:
        """For the JVM of a session: use the archive, or list the classes for one."""
        if self.file.is_file():
            with suppress(OSError):
                os.utime(self.file)  # it is used
            # A message about an archive that does not fit would go to the user's standard output.
            quiet = ["-Xlog:cds*=off", *(["-Xlog:aot*=off"] if self.version >= _LOGS_AOT else [])]
            return [f"-XX:SharedArchiveFile={self.file}", "-Xshare:auto", *quiet]
        if self._has_room():
            return [f"-XX:DumpLoadedClassList={self.list_of(os.getpid())}"]
        return []

    def list_of(self, driver: int) -> Path:
        """The classes that the JVM of a driver has loaded."""
        return self.file.with_name(f"{self.file.stem}.{driver}{LISTS}")

    def make_after_exit(self, jvm: int, class_path: str) -> None:
        """When this process has ended, make the archive from the list that its JVM leaves."""
        atexit.register(self._start_making, os.getpid(), jvm, class_path)

    def _has_room(self) -> bool:
        try:
            return shutil.disk_usage(self.file.parent).free >= FREE_BYTES
        except OSError:
            return False

    def _start_making(self, driver: int, jvm: int, class_path: str) -> None:
        if os.getpid() != driver:
            return  # a forked child has the handlers of its parent
        command = [sys.executable, "-m", __name__, str(self.java), str(self.file)]
        with suppress(OSError):
            subprocess.Popen(
                [*command, str(self.list_of(driver)), str(jvm), class_path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )


def cache_directory() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ottla" / "spark"


def make(java: Path, target: Path, classes: Path, class_path: str) -> bool:
    """Make an archive of the listed classes; False if there is one, or another process makes it."""
    with target.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if target.is_file():
            return False
        fresh = target.with_name(f"{target.stem}.{os.getpid()}.new")
        command = [
            *(str(java / "bin" / "java"), "-Xshare:dump", f"-XX:SharedClassListFile={classes}"),
            *(f"-XX:SharedArchiveFile={fresh}", "-cp", class_path),
        ]
        try:
            subprocess.run(
                command,
                capture_output=True,
                check=True,
                timeout=MAKE_SECONDS,
                stdin=subprocess.DEVNULL,
            )
            fresh.rename(target)
        except (OSError, subprocess.SubprocessError):
            return False
        finally:
            fresh.unlink(missing_ok=True)
        return True


def remove_unused(directory: Path, now: float) -> None:
    """Archives that no session has used for a month, and what killed processes have left."""
    for file in directory.iterdir():
        kept = UNUSED_SECONDS if file.suffix == SUFFIX else LEFT_SECONDS
        with suppress(OSError):
            if now - file.stat().st_mtime > kept:
                file.unlink()


def _wait_for_end(pid: int) -> bool:
    deadline = time.monotonic() + EXIT_SECONDS
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return True  # another user's process has this number now
        time.sleep(0.1)
    return False


def main() -> None:
    java, target, classes = (Path(one) for one in sys.argv[1:4])
    jvm, class_path = int(sys.argv[4]), sys.argv[5]
    os.nice(LOWEST_PRIORITY)
    try:
        if _wait_for_end(jvm):
            make(java, target, classes, class_path)
            remove_unused(target.parent, SYSTEM.wall())
    finally:
        classes.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
