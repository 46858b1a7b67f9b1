"""`ottla broker` as a process: the line it prints, how it ends, what it refuses."""

from __future__ import annotations

import asyncio
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from typer.testing import CliRunner

import ottla.sync
from ottla import Admin
from ottla.broker.running.run import FILE_TABLE
from ottla.cli.whole import app
from ottla.log.checkpoints import CLEAN_SHUTDOWN
from tests.support.ports import free_port
from tests.support.share_workers import set_group

if TYPE_CHECKING:
    from ottla.metadata.config.broker import BrokerConfig

READY = "ottla broker ready: "


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "broker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ready_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(READY), line
    return line.removeprefix(READY).strip()


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> None:
    process.send_signal(number)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0


def produce(address: str, value: bytes) -> int:
    offsets: list[Any] = []
    producer = Producer({"bootstrap.servers": address})
    producer.produce(
        "orders", value, on_delivery=lambda _, message: offsets.append(message.offset())
    )
    assert producer.flush(10) == 0
    first: int = offsets[0]
    return first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_serves_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = start("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    assert produce(ready_address(process), b"first") == 0
    stop(process, number)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    process = start("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    assert produce(ready_address(process), b"second") == 1
    stop(process)


def test_an_ephemeral_broker_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = start("--listen", "127.0.0.1:0", "--ephemeral")
    produce(ready_address(process), b"gone soon")
    assert list(tmp_path.iterdir())
    stop(process)
    assert not list(tmp_path.iterdir())


def refused(*arguments: str) -> str:
    process = start(*arguments)
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (2, "")
    assert errors.count("\n") == 1, errors
    return errors


def test_a_directory_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """As versions without a journal must refuse one that has it."""
    (tmp_path / "meta.properties").write_text(
        "version=3\ncluster.id=CWmwn4Y9Rr2kFJgYqEj52A\nnode.id=1\n"
        "directory.id=wa6eoAM0RoK2z2XA6-xVBw\n"
    )
    said = refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert f"data directory {tmp_path} cannot be used: meta.properties has version 3" in said
    assert "the newer one" in said


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path))
    assert "address is in use" in said
    assert "--listen" in said


def test_a_taken_port_for_metrics_is_said_and_the_directory_is_given_back(tmp_path: Path) -> None:
    options = "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(*options, "--metrics-port", str(port))
    assert f"metrics at 127.0.0.1:{port}" in said
    assert "address is in use" in said
    assert "--metrics-port 0" in said
    assert "--listen" not in said
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
def test_a_host_that_cannot_be_listened_on_is_named(tmp_path: Path, host: str) -> None:
    """Fault: the data directory was blamed."""
    place = "--listen", f"{host}:0", "--data-dir", str(tmp_path)
    said = refused(*place, "--insecure", "--log-level", "error")
    assert f"listener PLAINTEXT at {host}:0: " in said
    assert str(tmp_path) not in said


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_there_is_room_for_thousands_of_files_from_the_start(tmp_path: Path) -> None:
    """Fault: the kernel made it while connections were accepted, which held up everybody."""
    process = start("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    ready_address(process)
    status = Path(f"/proc/{process.pid}/status").read_text()
    (size,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("FDSize"))
    assert size >= min(FILE_TABLE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    stop(process)


def test_a_locked_directory_is_said_in_one_line(tmp_path: Path) -> None:
    process = start("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    ready_address(process)
    said = refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert f"in use by process {process.pid}" in said
    stop(process)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "log.retention.hour=1"), "log.retention.hours"),
        (("--set", "num.partitions=none"), "num.partitions"),
        (("--set", "nonsense"), "key=value"),
        (("--listen", "9092"), "HOST:PORT"),
        (("--listen", "127.0.0.1:65536"), "up to 65535"),
        (("--config", "missing.toml"), "missing.toml"),
        (("--ephemeral", "--data-dir", "x"), "--data-dir"),
        (("--log-format", "xml"), "text or json"),
        (("--data-dir", ""), "--data-dir is empty"),
        (("--data-dir", __file__), f"{__file__} is not a directory"),
        (("--data-dir", __file__, "--secure"), f"{__file__} is not a directory"),
        (
            ("--port", "0", "--set", "listeners=PLAINTEXT://127.0.0.1:0"),
            "--port and --set listeners contradict each other",
        ),
        (("--set", "log.dirs=a,b"), "one data directory, and log.dirs names 2"),
        *(
            ((*option, "--set", f"{key}=x"), f"{option[0]} and --set {key} contradict each other")
            for option, key in (
                (("--listen", "127.0.0.1:0"), "listeners"),
                (("--metrics-port", "0"), "ottla.metrics.listener"),
                (("--console-listen", "127.0.0.1:0"), "ottla.console.listener"),
                (("--console-write",), "ottla.console.write"),
                (("--nodes", "2"), "ottla.nodes"),
                (("--insecure",), "ottla.allow.insecure.listeners"),
            )
        ),
    ],
)
def test_a_bad_option_is_said_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(*arguments)


@pytest.mark.parametrize("secure", [False, True])
def test_several_addresses_are_refused_with_settings_that_serve_them(
    tmp_path: Path, secure: bool
) -> None:
    """Fault: all but the last were left out in silence."""
    place = "--data-dir", str(tmp_path), *(["--secure"] if secure else [])
    several = "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"
    result = CliRunner().invoke(app, ["broker", *place, *several])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--listen takes one address, not 2" in result.stderr
    settings = result.stderr[result.stderr.index("--set") :].split()
    process = start(*place, *settings)
    assert len(ready_address(process).split()) == 2
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")


def test_listen_wins_over_the_listeners_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://no-such-host.invalid:9092\n")
    process = start("--config", str(file), "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert ready_address(process).startswith("127.0.0.1:")
    stop(process)
    assert "Replaces listeners of" in CliRunner().invoke(app, ["broker", "--help"]).stdout


@pytest.mark.parametrize(("option", "port"), [("registry", 8081), ("console", 9095)])
@pytest.mark.parametrize("source", ["option", "set", "file"])
def test_registry_and_console_listen_where_their_settings_say(
    option: str, port: int, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: they listened on their usual ports all the same."""
    monkeypatch.chdir(tmp_path)
    key, other = f"ottla.{option}.listener", "http://127.0.0.1:41081"
    Path("server.properties").write_text(f"{key}={other}\n")
    args, address = {
        "option": ((), f"http://127.0.0.1:{port}"),
        "set": (("--set", f"{key}={other}"), other),
        "file": (("--config", "server.properties"), other),
    }[source]
    found: list[BrokerConfig] = []
    monkeypatch.setattr("ottla.cli.broker._run", lambda config, *_: found.append(config))
    result = CliRunner().invoke(app, ["broker", f"--{option}", *args])
    assert (result.exit_code, result.stderr) == (0, "")
    assert [one.parsed(key) for one in found] == [address]


@pytest.mark.parametrize("option", ["--port", "--metrics-port"])
def test_a_port_that_is_none_is_refused(option: str) -> None:
    result = CliRunner().invoke(app, ["broker", option, "65536"])
    assert result.exit_code == 2
    assert "0<=x<=65535" in result.stderr


def test_metrics_are_served(tmp_path: Path) -> None:
    port = free_port()
    process = start("--listen", "127.0.0.1:0", "--ephemeral", "--metrics-port", str(port))
    produce(ready_address(process), b"counted")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    assert 'ottla_requests_total{api="produce"} 1.0' in text
    assert 'ottla_log_end_offset{partition="0",topic="orders"} 1.0' in text
    assert f'ottla_build_info{{version="{ottla.__version__}"}} 1.0' in text
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert 0 < float(found["ottla_start_time_seconds"]) <= time.time()
    assert float(found["ottla_disk_free_bytes"]) > 0
    assert float(found["ottla_loop_lag_seconds"]) >= 0
    assert float(found["ottla_transaction_open_seconds_max"]) == 0
    for path in ("healthz", "readyz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
            assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/")
    stop(process)


def test_metrics_tell_how_the_journal_is_doing(tmp_path: Path) -> None:
    port = free_port()
    process = start(
        *("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--metrics-port", str(port)),
        *("--set", "ottla.flush.mode=journal"),
    )
    address = ready_address(process)

    def samples() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("ottla_journal_"))
        return {name: float(value) for name, value in pairs}

    produce(address, b"makes the journal's first file")
    while not samples()["ottla_journal_write_seconds_count"]:
        produce(address, b"counted")
    found = samples()
    assert found["ottla_journal_write_seconds_sum"] > 0
    assert found['ottla_journal_write_seconds_bucket{le="+Inf"}'] >= 1
    assert found["ottla_journal_written_bytes_total"] >= 4096
    assert found["ottla_journal_direct_partitions_total"] >= 1
    assert found["ottla_journal_off"] == 0
    assert {"ottla_journal_free_files", "ottla_journal_checkpoints_total"} <= found.keys()
    assert "ottla_journal_checkpoint_seconds_total" in found
    stop(process)


@pytest.mark.long
def test_metrics_tell_how_long_a_transaction_is_open() -> None:
    port = free_port()
    process = start("--listen", "127.0.0.1:0", "--ephemeral", "--metrics-port", str(port))
    address = ready_address(process)

    def longest() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            found = re.search(
                r"^ottla_transaction_open_seconds_max (\S+)$", answer.read().decode(), re.MULTILINE
            )
        assert found is not None
        return float(found[1])

    with ottla.sync.Producer(address, transactional_id="t") as producer:
        with producer.transaction():
            producer.send("orders", b"x")
            deadline = time.monotonic() + 30.0
            while longest() == 0:
                assert time.monotonic() < deadline
        deadline = time.monotonic() + 30.0
        while longest() > 0:
            assert time.monotonic() < deadline
    stop(process)


def test_metrics_tell_how_share_partitions_are_doing(tmp_path: Path) -> None:
    port = free_port()
    makes_letters = "errors.deadletterqueue.auto.create.topics.enable=true"
    process = start(
        *("--listen", "127.0.0.1:0", "--ephemeral", "--metrics-port", str(port)),
        *("--set", makes_letters),
    )
    address = ready_address(process)
    set_group(address, "workers", errors_deadletterqueue_topic_name="dlq.orders")

    def metrics() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text: str = answer.read().decode()
        return text

    settings = {
        "bootstrap.servers": address,
        "group.id": "workers",
        "share.acknowledgement.mode": "explicit",
    }
    start_at_the_first_record(address, "workers")
    for _ in range(2):
        produce(address, b"held")
    with ShareConsumer(settings) as consumer:
        consumer.subscribe(["orders"])
        held: list[Any] = []
        deadline = time.monotonic() + 30.0
        while len(held) < 2:
            assert time.monotonic() < deadline
            held += consumer.poll(0.5)
        text = metrics()
        for message in held:
            consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync(30.0)
        later = metrics()
    labels = '{group="workers",partition="0",topic="orders"}'
    assert f"ottla_share_start_offset{labels} 0.0" in text
    assert f"ottla_share_end_offset{labels} 2.0" in text
    assert f"ottla_share_in_flight_records{labels} 2.0" in text
    assert f"ottla_share_delivered_records_total{labels} 2.0" in text
    assert f"ottla_share_available_records{labels} 0.0" in text
    assert re.search(
        rf"ottla_share_window_stalled_seconds{re.escape(labels)} [\d.e-]+$", text, re.MULTILINE
    )
    assert 'ottla_group_members{group="workers",state="Stable",type="share"} 1.0' in text
    assert 'ottla_share_dead_letters_total{group="workers"} 2.0' in later
    assert "ottla_share_dead_letters_lost_total{" not in later
    stop(process)


def start_at_the_first_record(address: str, group: str) -> None:
    async def alter() -> None:
        async with Admin(address) as admin:
            await admin.alter_configs("group", group, {"share.auto.offset.reset": "earliest"})

    asyncio.run(alter())
