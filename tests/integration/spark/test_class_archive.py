"""The archive of Spark's classes, with a program in place of Java."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.spark.class_archive import (
    LEFT_SECONDS,
    SETTING,
    UNUSED_SECONDS,
    ClassArchive,
    is_wanted,
    make,
    remove_unused,
)

PATIENCE_SECONDS = 30.0
RELEASE = 'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n'
# Writes the classes that it is given to the archive that it is to make.
JAVA = """#!/bin/sh
for argument do
  case $argument in
    -XX:SharedClassListFile=*) list=${argument#*=};;
    -XX:SharedArchiveFile=*) archive=${argument#*=};;
  esac
done
cat "$list" > "$archive"
"""
PROGRAM = """
import sys
from pathlib import Path
from ottla.spark.class_archive import ClassArchive

archive = ClassArchive.of(Path(sys.argv[1]), Path(sys.argv[2]))
[listing] = archive.options()
Path(listing.partition("=")[2]).write_text("java/lang/Object\\n")
archive.make_after_exit(int(sys.argv[3]), "some.jar")
print(archive.file)
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ottla" / "spark"


def java_home(home: Path, version: str = "17.0.2", program: str = JAVA) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(RELEASE.format(version=version))
    (home / "bin" / "java").write_text(program)
    (home / "bin" / "java").chmod(0o755)
    return home


def spark_home(home: Path) -> Path:
    (home / "jars").mkdir(parents=True)
    return home


def archive_of(java: Path, spark: Path) -> ClassArchive:
    found = ClassArchive.of(java, spark)
    assert found is not None
    return found


def test_without_an_archive_java_lists_classes_and_with_one_it_uses_it(
    tmp_path: Path, cache: Path
) -> None:
    archive = archive_of(java_home(tmp_path / "java"), spark_home(tmp_path / "spark"))
    assert archive.file.parent == cache
    assert archive.options() == [f"-XX:DumpLoadedClassList={archive.list_of(os.getpid())}"]
    archive.file.write_bytes(b"")
    used = archive.options()
    assert used[:2] == [f"-XX:SharedArchiveFile={archive.file}", "-Xshare:auto"]
    assert "-Xlog:aot*=off" not in used  # which Java 17 would refuse


def test_a_later_java_has_another_name_for_the_messages(tmp_path: Path) -> None:
    java = java_home(tmp_path / "java", "25.0.2")
    archive = archive_of(java, spark_home(tmp_path / "spark"))
    archive.file.write_bytes(b"")
    assert "-Xlog:aot*=off" in archive.options()


def test_each_java_and_each_spark_has_its_own(tmp_path: Path) -> None:
    java, newer = java_home(tmp_path / "java"), java_home(tmp_path / "newer", "21.0.1")
    spark, other = spark_home(tmp_path / "spark"), spark_home(tmp_path / "other")
    files = {archive_of(one, to).file for one in (java, newer) for to in (spark, other)}
    assert len(files) == 4


def test_a_java_that_does_not_say_what_it_is_gets_none(tmp_path: Path) -> None:
    java = java_home(tmp_path / "java")
    (java / "release").unlink()
    assert ClassArchive.of(java, spark_home(tmp_path / "spark")) is None


def test_a_cache_that_cannot_be_made_means_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert ClassArchive.of(java_home(tmp_path / "java"), spark_home(tmp_path / "spark")) is None


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, True),
        ({SETTING: "true"}, True),
        ({SETTING: "false"}, False),
        ({SETTING: "False"}, False),
    ],
)
def test_a_setting_turns_it_off(settings: dict[str, str], wanted: bool) -> None:
    assert is_wanted(settings) is wanted


def test_it_is_made_once(tmp_path: Path) -> None:
    java, target, classes = java_home(tmp_path / "java"), tmp_path / "it.jsa", tmp_path / "list"
    classes.write_text("java/lang/Object\n")
    assert make(java, target, classes, "some.jar")
    assert target.read_text() == "java/lang/Object\n"
    classes.write_text("java/lang/String\n")
    assert not make(java, target, classes, "some.jar")
    assert target.read_text() == "java/lang/Object\n"


def test_one_process_makes_it(tmp_path: Path) -> None:
    java, target, classes = java_home(tmp_path / "java"), tmp_path / "it.jsa", tmp_path / "list"
    classes.touch()
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not make(java, target, classes, "some.jar")
    assert not target.exists()


@pytest.mark.parametrize("ending", ["exit 1", "kill -9 $$"])
def test_one_that_cannot_be_made_leaves_nothing(tmp_path: Path, ending: str) -> None:
    java = java_home(tmp_path / "java", program=f"{JAVA}{ending}\n")
    target, classes = tmp_path / "it.jsa", tmp_path / "list"
    classes.write_text("java/lang/Object\n")
    assert not make(java, target, classes, "some.jar")
    assert {one.suffix for one in tmp_path.iterdir()} == {"", ".lock"}


def test_a_process_that_has_ended_is_followed_by_one_that_makes_it(tmp_path: Path) -> None:
    java, spark = java_home(tmp_path / "java"), spark_home(tmp_path / "spark")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, java, spark, str(jvm.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        target = Path(done.stdout.strip())
        time.sleep(0.3)
        assert not target.exists()  # not before the JVM has ended, which still writes to the list
        jvm.communicate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not target.exists() or list(target.parent.glob("*.classes")):
        assert time.monotonic() < deadline, list(target.parent.iterdir())
        time.sleep(0.01)
    assert target.read_text() == "java/lang/Object\n"


def test_what_nobody_has_used_for_a_month_is_removed(tmp_path: Path) -> None:
    ages = {
        "old.jsa": UNUSED_SECONDS + 60,
        "used.jsa": LEFT_SECONDS + 60,
        "left.1.classes": LEFT_SECONDS + 60,
        "new.2.classes": 60,
    }
    now = time.time()
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age,) * 2)
    remove_unused(tmp_path, now)
    assert {one.name for one in tmp_path.iterdir()} == {"used.jsa", "new.2.classes"}
