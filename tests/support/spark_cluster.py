"""Spark from the pip package as servers on loopback: a Connect server, a standalone cluster."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import venv
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow
import pyspark

import ottla
from ottla.spark.java import find_java
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SPARK_HOME: Final = Path(pyspark.__file__).parent
SOURCES: Final = Path(ottla.__file__).parents[1]
PATIENCE: Final = 240
CONNECT_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
# What an executor needs beside Ottla and what Spark itself ships.
PACKED: Final = (
    *("pyarrow", "numpy", "numpy.libs", "numba", "llvmlite", "llvmlite.libs", "crc32c"),
    *("cramjam", "re2", "uvloop"),
)


def environment(**more: str) -> dict[str, str]:
    """The environment of a server: no path to Ottla's sources unless it is given."""
    kept = {name: one for name, one in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "JAVA_HOME": str(find_java()), "SPARK_HOME": str(SPARK_HOME), **more}


@contextmanager
def server(
    command: list[str], log: Path, wait_for: str, environ: Mapping[str, str]
) -> Iterator[None]:
    """A server that has said `wait_for`; it and its children end with the block."""
    with log.open("wb") as opened:
        process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=opened,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while wait_for not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """A Connect server; its address."""
    port = free_port()
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--class", CONNECT_SERVER]
    confs = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    for name, value in confs.items():
        command += ["--conf", f"{name}={value}"]
    environ = environment(
        PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(SOURCES), SPARK_NO_DAEMONIZE="1"
    )
    with server(
        [*command, "--master", "local[2]"],
        directory / "connect.log",
        "Spark Connect server started",
        environ,
    ):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[str]:
    """A master and its workers; its address. Nothing of them knows Ottla."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    environ = environment(SPARK_LOCAL_IP="127.0.0.1", SPARK_WORKER_WEBUI_PORT="0")
    with ExitStack() as stack:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        command = [spark_class, *master, "--port", str(port), "--webui-port", "0"]
        wait_for = "I have been elected leader"
        stack.enter_context(server(command, directory / "master.log", wait_for, environ))
        for number in range(workers):
            place = directory / f"worker-{number}"
            place.mkdir()
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", "--cores", "1"]
            command += ["--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0"]
            command += ["--work-dir", str(place), url]
            log = directory / f"worker-{number}.log"
            wait_for = "Successfully registered with master"
            stack.enter_context(server(command, log, wait_for, environ))
        yield url


def make_environment(directory: Path) -> Path:
    """A virtual environment with what executors need except for Ottla; its packages are copies."""
    venv.create(directory, symlinks=True)
    [packages] = directory.glob("lib/python*/site-packages")
    installed = Path(pyarrow.__file__).parents[1]
    for name in PACKED:
        for found in (installed / name, *installed.glob(f"{name}-*.dist-info")):
            if found.is_dir():
                shutil.copytree(found, packages / found.name, ignore=_no_tests)
    return packages


def _no_tests(directory: str, names: list[str]) -> set[str]:
    return {one for one in names if one in ("tests", "include", "__pycache__")}


def pack_environment(directory: Path, packages: Path, archive: Path) -> None:
    """Add Ottla and pack it all, as for a cluster."""
    shutil.copytree(SOURCES / "ottla", packages / "ottla")
    shutil.copy(SOURCES / "pyspark_ottla.py", packages)
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(directory, arcname=".")


def zip_sources(directory: Path) -> Path:
    """Ottla alone as a zip file, as py-files has it."""
    return Path(shutil.make_archive(str(directory / "ottla-sources"), "zip", SOURCES))
