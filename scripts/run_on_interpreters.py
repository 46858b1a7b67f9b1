"""Runs the unit and client tests on each other Python that is installed.

`make interpreters` does it alone, `make verify` after its own tests. Property tests have as many
examples as in `make test`.

- A Python is looked for by name on PATH and among pyenv's versions. One that is not found is named
  at the end and is no failure.
- Each has a virtual environment of its own, `.venv-3.12` and so on, with the packages that
  pyproject.toml and constraints.txt name. It is filled again when one of these files changes.
- Where packages cannot be installed, for example without a network, it says so. On CI that fails
  the run if pyproject.toml lists this Python; a newer one has to wait for the wheels of others.
- An installation and a run have time limits; whatever exceeds its limit is ended and has failed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
TESTS: Final = (
    "tests/unit",
    "tests/integration/client",
    "tests/integration/offsets/test_sqlite.py",
)
PYTEST: Final = (
    # Half of the time of a test is waiting, so four workers fill two cores.
    *("-q", "-n", "4", "--dist", "loadfile", "--max-worker-restart=0"),
    *("-o", "faulthandler_timeout=600", "-o", "faulthandler_exit_on_timeout=true"),
)
MARKS: Final = ("-m", "not (jvm or long or soak)")
LINES_OF_PIP: Final = 5
"""The end of what pip says names the package; the rest is its log."""
INSTALL_SECONDS: Final = 900
"""An installation takes a minute, and some more over a slow network."""
RUN_SECONDS: Final = 1200
"""A run takes two minutes on two free cores; ten times as long is a busy machine, or a deadlock."""


def main() -> int:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    outcomes: dict[str, str] = {}
    failed = False
    found = {version: interpreter(version) for version in VERSIONS if version != here}
    for version, problem in _filled({v: python for v, python in found.items() if python}).items():
        if problem is not None:
            outcomes[version] = f"found, but its packages cannot be installed: {problem}"
            failed |= bool(os.environ.get("CI")) and version in supported()
    for version in VERSIONS:
        if version == here:
            outcomes[version] = "runs all tests of make test and make verify"
            continue
        if found[version] is None:
            outcomes[version] = f"not found: no python{version} on PATH, none in ~/.pyenv/versions"
            continue
        if version in outcomes:
            continue
        environment = ROOT / f".venv-{version}"
        print(f"Python {version}: {' '.join(TESTS)}", flush=True)
        command = [str(environment / "bin" / "python"), "-m", "pytest", *PYTEST, *MARKS, *TESTS]
        quick = {**os.environ, "HYPOTHESIS_PROFILE": "quick"}
        try:
            done = subprocess.run(command, cwd=ROOT, env=quick, check=False, timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            problem = f"not done after {RUN_SECONDS} s"
        else:
            problem = f"pytest ended with {done.returncode}" if done.returncode else None
        outcomes[version] = "passed" if problem is None else f"FAILED: {problem}"
        failed |= problem is not None
    for version in VERSIONS:
        print(f"Python {version}: {outcomes[version]}")
    return int(failed)


def _filled(found: dict[str, str]) -> dict[str, str | None]:
    """Fill the environments of all, at once: an installation waits for the network and the disk."""
    with ThreadPoolExecutor() as pool:
        environments = [ROOT / f".venv-{version}" for version in found]
        return dict(zip(found, pool.map(fill, found.values(), environments), strict=True))


def interpreter(version: str) -> str | None:
    """One that runs; pyenv's shims are there for versions that are not chosen, and fail."""
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for found in (shutil.which(f"python{version}"), *map(str, reversed(installed))):
        if found and _runs(found):
            return found
    return None


def _runs(python: str) -> bool:
    return subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0


def fill(python: str, environment: Path) -> str | None:
    """Install the packages that the tests need; return the reason of a failure, or None."""
    files = (ROOT / "pyproject.toml", ROOT / "constraints.txt")
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    stamp = environment / "installed-from"
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    print(f"filling {environment.name}", flush=True)
    own = str(environment / "bin" / "python")
    # What is not imported need not be compiled; that takes half of the time of an installation.
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    for command in (
        [python, "-m", "venv", str(environment)],
        [*pip, "-c", "constraints.txt", "-e", ".[dev]"],
    ):
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"not done after {INSTALL_SECONDS} s"
        if done.returncode != 0:
            return "\n".join(done.stderr.strip().splitlines()[-LINES_OF_PIP:])
    stamp.write_text(wanted)
    return None


def supported() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text()
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


if __name__ == "__main__":
    sys.exit(main())
