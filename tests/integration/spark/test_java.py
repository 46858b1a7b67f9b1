"""Which Java Spark gets."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from ottla.spark import java
from ottla.spark.errors import NoJava
from ottla.spark.jvm import JVM_OPTIONS
from ottla.spark.session import CHECKPOINT_MANAGER, UNIX_SOCKETS, profile

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(home: Path, version: str) -> Path:
    """A program that says it is Java of a version, and otherwise what it was started with."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && { echo \'openjdk version "VERSION"\' >&2; exit; }\n'
        'printf "%s\\n" "$@"\n'.replace("VERSION", version)
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java; PATH has the system's programs alone."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_java_home_comes_first(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(nothing / "one", "21.0.1")
    other = fake_java(nothing / "other", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(nothing / "one"))
    monkeypatch.setenv("PATH", str(other.parent))
    assert java.find_java() == nothing / "one"
    monkeypatch.delenv("JAVA_HOME")
    assert java.find_java() == nothing / "other"


def test_case_49_without_a_java_that_will_do_the_bundled_one_starts_behind_a_script(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(nothing / "old", "11.0.9")
    monkeypatch.setenv("JAVA_HOME", str(nothing / "old"))
    home = java.find_java()
    assert home == nothing / "cache" / "ottla" / "java"
    said = subprocess.run(
        [home / "bin" / "java", java.VECTOR_MODULE, "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "version" in said.stderr


def test_the_script_drops_one_argument_and_no_other(nothing: Path) -> None:
    real = fake_java(nothing / "with blanks", "21")
    given = ["-Xmx1g", java.VECTOR_MODULE, "-cp", "a b:*", "Main", ""]
    command = [str(java.make_shim(real) / "bin" / "java"), *given]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "-Xmx1g\n-cp\na b:*\nMain\n\n"


def test_case_49_no_java_at_all_is_told_with_what_to_install(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(NoJava, match=r"Java 17 or later .*pip install"):
        java.find_java()


def test_the_profile_of_remote_checkpoints_keeps_sparks_own_way_of_writing() -> None:
    assert profile()[UNIX_SOCKETS] == "true"
    assert CHECKPOINT_MANAGER in profile()
    assert CHECKPOINT_MANAGER not in profile(local_checkpoints=False)


@pytest.mark.parametrize(("cores", "serial"), [(2, True), (16, False)])
def test_on_few_cores_the_collector_has_no_threads_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cores: int, serial: bool
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert ("-XX:+UseSerialGC" in profile()[JVM_OPTIONS].split()) == serial
