"""A fresh virtual environment with Ottla's wheel, and nothing but what an extra asks for.

The wheel is installed by pip. The packages that it requires are those of the environment that runs
the tests, linked file by file: so a test needs no network, and what a requirement does not name,
directly or by others, is not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

NAME: Final = "ottla"


def required(wheel: Distribution, extras: frozenset[str]) -> dict[str, Distribution]:
    """The packages that a wheel needs with these extras, by name; not itself."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(NAME, extras)]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        package = wheel if name == NAME else distribution(name)
        if name != NAME:
            found[name] = package
        waiting += requirements(package, wanted)
    return found


def requirements(
    package: Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """What a package requires, and which extras of it."""
    for text in package.requires or ():
        one = Requirement(text)
        chosen = ("", *extras)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in chosen):
            yield canonicalize_name(one.name), frozenset(map(canonicalize_name, one.extras))


def size_of(packages: Mapping[str, Distribution]) -> int:
    """The bytes of all their files."""
    files = (one for package in packages.values() for one in package.files or ())
    return sum(one.size or 0 for one in files)


class Installed:
    """A virtual environment in a directory, with the wheel and the packages of these extras."""

    def __init__(self, directory: Path, wheel: Path, *extras: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
        self.bin = directory / "bin"
        (self.site,) = directory.glob("lib/python*/site-packages")
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install"]
        subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", wheel], check=True)
        (info,) = self.site.glob("ottla-*.dist-info")
        self.packages = required(Distribution.at(info), frozenset(extras))
        for package in self.packages.values():
            self._link(package)

    def _link(self, package: Distribution) -> None:
        for file in package.files or ():
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            place = self.site / file
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.symlink_to(str(package.locate_file(file)))

    @property
    def environment(self) -> dict[str, str]:
        """Of a user who has activated it, and sits nowhere near a checkout."""
        kept = {"HOME", "LANG", "TMPDIR", "JAVA_HOME"}
        chosen = {name: value for name, value in os.environ.items() if name in kept}
        return {**chosen, "PATH": f"{self.bin}:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}

    def run(self, *command: str, directory: Path, status: int = 0) -> str:
        """What a command prints; its status is as expected."""
        done = subprocess.run(
            command,
            cwd=directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == status, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr
