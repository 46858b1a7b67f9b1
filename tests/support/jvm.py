"""Apache Kafka itself, from Maven artefacts: its broker and its command line tools.

Rules:

- The jars are resolved once per version into a cache directory, by whoever takes the lock first;
  a directory that is there is complete. TESTS_KAFKA_CACHE names another cache.
- On a machine without a JDK or Maven `kafka_classpath()` is None and `why_no_jvm()` says why;
  everything else here raises `NoJvm` with the same sentence.
- A broker is gone when its context ends, however it ends, and when this process is killed.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

# The newest release of which the broker is published too; kafka-clients alone may be ahead.
KAFKA_VERSION: Final = "4.3.1"
OLDEST_JAVA: Final = 17
CACHE_VARIABLE: Final = "TESTS_KAFKA_CACHE"
RESOLVE_TIMEOUT: Final = 600.0
START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 20.0
CONNECT_TIMEOUT: Final = 5.0

# A fixed cluster id lets a directory that was kept be started again.
CLUSTER_ID: Final = "T3R0bGFUZXN0Q2x1c3Rlcg"

COMPLAINT: Final = re.compile(r"\] (WARN|ERROR|FATAL) |^Caused by: |Exception: ")

QUICK_START: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# What Kafka's own start script gives a broker.
BROKER_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dlog.level=INFO",
)

TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}

SOURCES: Final = Path(__file__).with_suffix("")


class NoJvm(RuntimeError):
    """Apache Kafka cannot run here; the message says what is missing."""


def kafka_classpath() -> str | None:
    """The Java class path of Apache Kafka, downloaded at the first call; None without a JVM."""
    found = _resolved()
    return None if isinstance(found, NoJvm) else found


def why_no_jvm() -> str | None:
    """Why `kafka_classpath()` is None, or None when it is not."""
    found = _resolved()
    return str(found) if isinstance(found, NoJvm) else None


@functools.cache
def _resolved() -> str | NoJvm:
    try:
        check_java()
        return f"{_jars()}/*"
    except NoJvm as missing:
        return missing


def needed_classpath() -> str:
    """The class path, or NoJvm for those who cannot do without."""
    found = _resolved()
    if isinstance(found, NoJvm):
        raise found
    return found


def check_java() -> None:
    """Raise NoJvm without a JDK that is new enough."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            raise NoJvm(f"Apache Kafka needs a JDK, and there is no {program} here")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', said.stderr)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise NoJvm(f"Apache Kafka needs Java {OLDEST_JAVA} or later, here is: {said.stderr!r}")


def _cache() -> Path:
    default = Path.home() / ".cache" / "ottla" / f"kafka-{KAFKA_VERSION}"
    return Path(os.environ.get(CACHE_VARIABLE) or default)


@contextmanager
def cached(name: str) -> Iterator[tuple[Path, Path | None]]:
    """A directory of the cache and, only where it is yet to be made, one to fill in its place."""
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / name
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            yield target, None
            return
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            filling = Path(scratch) / name
            yield target, filling
            filling.rename(target)


def _jars() -> Path:
    with cached("jars") as (jars, filling):
        if filling is not None:
            download(SOURCES / "pom.xml", filling)
    return jars


def download(pom: Path, into: Path) -> None:
    """Copy the jars that a pom.xml names, and all that they need."""
    if shutil.which("mvn") is None:
        raise NoJvm("Apache Kafka comes through Maven, and there is no mvn here")
    command = [
        *("mvn", "-q", "-B", "-f", str(pom)),
        *("dependency:copy-dependencies", "-DincludeScope=runtime"),
        *(f"-Dkafka.version={KAFKA_VERSION}", f"-DoutputDirectory={into}"),
    ]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT, check=True)
    except subprocess.TimeoutExpired:
        raise NoJvm(f"mvn did not fetch Apache Kafka within {RESOLVE_TIMEOUT:.0f} s") from None
    except subprocess.CalledProcessError as failed:
        first = re.search(r"\[ERROR\] (.*)", failed.stdout)
        said = first[1] if first else failed.stderr
        raise NoJvm(f"mvn could not fetch Apache Kafka: {said}") from None


def own_classpath() -> str:
    """The class path with the programs in `SOURCES`, compiled when they have changed."""
    classpath = needed_classpath()
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    with cached(f"classes-{digest[:12]}") as (classes, filling):
        if filling is not None:
            subprocess.run(["javac", "-d", filling, "-cp", classpath, *sources], check=True)
    return f"{classes}:{classpath}"


def java_command(main: str, *args: str, classpath: str, options: Sequence[str]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}"
    return ["java", *options, "-Dfile.encoding=UTF-8", logging, "-cp", classpath, main, *args]


def run(command: list[str], stdin: str, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=stdin, capture_output=True, encoding="utf-8", timeout=timeout, check=False
    )


def run_tool(
    tool: str,
    *args: str,
    bootstrap: str | None = None,
    input: str | None = None,  # noqa: A002 - named as in subprocess.run
    timeout: float = 60.0,
    jvm_options: Sequence[str] = QUICK_START,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools by the name of its script, or any main class of Kafka's.

    The default JVM options are for a quick start; give others to whatever is to be measured.
    """
    main, *rest = tool_call(tool, *args, bootstrap=bootstrap)
    command = java_command(main, *rest, classpath=needed_classpath(), options=jvm_options)
    return run(command, input or "", timeout)


def tool_call(tool: str, *args: str, bootstrap: str | None) -> list[str]:
    """The main class of a tool and its arguments."""
    main = TOOLS.get(tool, tool)
    if bootstrap is None:
        return [main, *args]
    if tool == "kafka-cluster":
        return [main, *args, "--bootstrap-server", bootstrap]
    # kafka-features and kafka-transactions take it before their subcommand only.
    return [main, "--bootstrap-server", bootstrap, *args]


class ApacheKafka:
    """One node of Apache Kafka, controller and broker, on a free port of this machine.

    All its state is in `directory`, which is temporary and goes with it unless one is given.
    `config` overrides what is set below; `jvm_options` go after Kafka's own and so override them;
    `features` have these levels instead of their usual ones.
    """

    bootstrap: str
    pid: int
    data_dir: Path
    config_file: Path
    log_file: Path
    seconds_to_format: float
    seconds_to_ready: float

    def __init__(
        self,
        *,
        config: Mapping[str, str] | None = None,
        heap: str = "1g",
        jvm_options: Sequence[str] = (),
        directory: Path | None = None,
        features: Mapping[str, int] | None = None,
    ) -> None:
        self.config = dict(config or {})
        self._features = dict(features or {})
        self._options = (f"-Xmx{heap}", f"-Xms{heap}", *BROKER_JVM, *jvm_options)
        self._directory = directory
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        needed_classpath()
        with ExitStack() as stack:
            directory = self._directory
            if directory is None:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._configure(directory)
            self._format()
            began = time.monotonic()
            self._process = stack.enter_context(self._started())
            self.pid = self._process.pid
            self._wait_until_it_serves(began + START_TIMEOUT)
            self.seconds_to_ready = time.monotonic() - began
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.close()

    def rss_bytes(self) -> int:
        """Resident memory of the broker now. Needs Linux, as `cpu_seconds` does."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """User and system time of the broker since it started."""
        # After the program name, which may hold blanks: state, ..., utime, stime (see man 5 proc).
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def segments(self, topic: str, partition: int = 0) -> list[Path]:
        """The log segments of a partition, the oldest first."""
        return sorted((self.data_dir / f"{topic}-{partition}").glob("*.log"))

    def _configure(self, directory: Path) -> None:
        port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        self.data_dir = directory / "data"
        self.config_file = directory / "server.properties"
        self.log_file = directory / "broker.log"
        self.config = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            # One node cannot replicate.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # As in the configuration that Kafka ships: a group's first member is not held up.
            "group.initial.rebalance.delay.ms": "0",
            **self.config,
        }
        lines = [f"{key}={value}\n" for key, value in self.config.items()]
        self.config_file.write_text("".join(lines))

    def _format(self) -> None:
        began = time.monotonic()
        args = ("format", "-t", CLUSTER_ID, "-c", str(self.config_file), "--ignore-formatted")
        levels = [f"{name}={level}" for name, level in self._features.items()]
        features = [word for one in levels for word in ("--feature", one)]
        done = run_tool("kafka-storage", *args, *features)
        if done.returncode != 0:
            raise RuntimeError(f"kafka-storage format failed:\n{done.stdout}{done.stderr}")
        self.seconds_to_format = time.monotonic() - began

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        config = str(self.config_file)
        command = java_command("Broker", config, classpath=own_classpath(), options=self._options)
        with self.log_file.open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        with process:
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(STOP_TIMEOUT)
                except subprocess.TimeoutExpired:
                    process.kill()

    def _wait_until_it_serves(self, deadline: float) -> None:
        host, port = self.bootstrap.split(":")
        while True:
            try:
                socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
                break
            except OSError:
                self._check_starting(deadline)
                time.sleep(0.05)
        while not brokers_at(self.bootstrap):
            self._check_starting(deadline)

    def _check_starting(self, deadline: float) -> None:
        status = self._process.poll()
        if status is None and time.monotonic() < deadline:
            return
        what = f"did not serve in {START_TIMEOUT:.0f} s" if status is None else f"ended: {status}"
        lines = self.log_file.read_text(errors="replace").splitlines()
        # The last lines alone are often a listing of the configuration.
        complaints = [line for line in lines if COMPLAINT.search(line)] or lines
        raise RuntimeError("\n".join([f"Apache Kafka {what}; its log says:", *complaints[-20:]]))


def brokers_at(bootstrap: str) -> list[str]:
    """The brokers that a metadata answer names, none if there is no answer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        found = admin.list_topics(timeout=CONNECT_TIMEOUT).brokers.values()
    except KafkaException:
        return []
    return [f"{one.host}:{one.port}" for one in found]
