"""Starts the JVM of a session and connects PySpark with it.

PySpark could do both, but only one after the other, and only when it is imported itself. Here a JVM
is a process that starts while this one goes on; `connect` waits for it. It ends with this process,
because it reads its standard input.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.spark.class_archive import ClassArchive, is_wanted
from ottla.spark.errors import NoSpark
from ottla.spark.zygote import start_zygote, worker_python

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
POLL_SECONDS: Final = 0.02
PORT: Final = "PYSPARK_GATEWAY_PORT"
PYTHONS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
SECRET: Final = "PYSPARK_GATEWAY_SECRET"
LAUNCH_SECONDS: Final = 60.0
"""To put a command line together takes 0.2 s; if it does not end, `spark-submit` may try."""
_PLACES: Final = ("SPARK_HOME", "SPARK_CONF_DIR")
_LOCAL: Final = re.compile(r"local(\[[^\]]*\])?$")
_LAUNCHER: Final = re.compile(r"spark-launcher_([\d.]+)-")
# A JVM that lives that long compiles nothing worth it.
_QUICK: Final = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def spark_home() -> Path:
    """Where Spark is; PySpark need not be imported for that."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise NoSpark("Spark is not installed: pip install 'ottla[spark]'")
    return Path(found.submodule_search_locations[0])


class Jvm:
    """A JVM that is starting; JAVA_HOME says which Java. Its output goes to `log`."""

    def __init__(self, settings: Mapping[str, str], log: Path | None = None) -> None:
        home = spark_home()
        given = dict(settings)
        self._archive = None
        if is_wanted(settings):
            self._archive = ClassArchive.of(Path(os.environ["JAVA_HOME"]), home)
        if self._archive is not None:
            options = [given.get(JVM_OPTIONS, ""), *self._archive.options()]
            given[JVM_OPTIONS] = " ".join(options).strip()
        arguments = [word for pair in given.items() for word in ("--conf", "=".join(pair))]
        arguments += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        is_plain = _is_plain(home, settings)
        if is_plain:
            start_zygote(settings)
        command = _direct(home, arguments) if is_plain else None
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-jvm-"))
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told),
        }
        if is_plain:
            environment |= dict.fromkeys(PYTHONS, worker_python())
        output = None if log is None else log.open("ab")
        try:
            self._process = subprocess.Popen(
                command or [str(home / "bin" / "spark-submit"), *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                process_group=0,  # Ctrl-C is for this process alone
            )
        finally:
            if output is not None:
                output.close()

    @property
    def _told(self) -> Path:
        return self._directory / "connection"

    def connect(self) -> None:
        """Wait until it has started, and make it the JVM of PySpark's sessions."""
        from pyspark import SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway

        try:
            while self._process.poll() is None and not self._told.is_file():
                time.sleep(POLL_SECONDS)
            if not self._told.is_file():
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            port, secret = _connection(self._told.read_bytes())
            with SparkContext._lock:
                before = {name: os.environ.get(name) for name in (PORT, SECRET)}
                os.environ |= {PORT: str(port), SECRET: secret}
                try:
                    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # PySpark's
                finally:
                    for name, value in before.items():
                        os.environ.pop(name) if value is None else os.environ.update({name: value})
                gateway.proc = self._process
                SparkContext._ensure_initialized(gateway=gateway)
        except BaseException:
            self.end()
            raise
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._archive is not None and not self._archive.file.is_file():
            class_path = gateway.jvm.java.lang.System.getProperty("java.class.path")
            self._archive.make_after_exit(self._process.pid, class_path)

    def end(self) -> None:
        """Kill a JVM that nobody wants."""
        self._process.kill()
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def _is_plain(home: Path, settings: Mapping[str, str]) -> bool:
    """Whether this is the Spark of this Python, with no files of settings, on this machine."""
    is_local = _LOCAL.match(settings.get("spark.master", "")) is not None
    workers = settings.get("spark.pyspark.python", sys.executable)
    is_configured = (home / "conf").exists() or not os.environ.keys().isdisjoint(_PLACES)
    return is_local and workers == sys.executable and not is_configured


def _direct(home: Path, arguments: Sequence[str]) -> list[str] | None:
    """The command that `spark-submit` would run, to be run without SPARK_HOME in its environment.

    With SPARK_HOME Python workers import PySpark from a zip file that has no bytecode: each of the
    seven processes of a query compiles it once more, which takes half a second each.
    """
    for jar in (home / "jars").glob("spark-launcher_*.jar"):
        scala = _LAUNCHER.match(jar.name)
        if scala is None:
            continue
        java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
        launcher = (java, *_QUICK, "-cp", str(jar), "org.apache.spark.launcher.Main")
        try:
            done = subprocess.run(
                [*launcher, "org.apache.spark.deploy.SparkSubmit", *arguments],
                env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala[1]},
                capture_output=True,
                check=True,
                timeout=LAUNCH_SECONDS,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        _, begun, words = done.stdout.partition(b"\0\n")
        return [os.fsdecode(word) for word in words.split(b"\0")[:-1]] if begun else None
    return None


def _connection(told: bytes) -> tuple[int, str]:
    port, length = struct.unpack_from(">ii", told)
    return port, told[8 : 8 + length].decode()
