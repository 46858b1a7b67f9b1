"""Runs the broker tests of franz-go and of librdkafka against brokers of this checkout.

    python scripts/run_foreign_suites.py franz-go DIR [TEST ...]
    python scripts/run_foreign_suites.py librdkafka DIR [TEST ...]

DIR is a checkout of theirs, in which their own runner works: `go test ./pkg/kgo`, or
`tests/test-runner` (their README says how to build it). `make soak` calls this where
OTTLA_TEST_FRANZ_GO or OTTLA_TEST_LIBRDKAFKA names a checkout.

- Topics have three replicas, so the broker has three nodes. librdkafka's tests with ACLs want an
  authorizer and Kafka's tools, those of topics that are not created unasked a broker of their own.
  franz-go's tests of SCRAM get a broker that asks for a password.
- TEST chooses tests: a pattern of `go test -run`, or numbers of librdkafka's tests.
- Tests that cannot pass are named in `EXPECTED`, each with its reason. The status is 1 if another
  one fails, or if one of these passes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
READY: Final = "ottla broker ready: "
FRANZ_GO: Final = "franz-go"
LIBRDKAFKA: Final = "librdkafka"
USER, PASSWORD = "testuser", "testpass"
# The suites ask for 4.2 and later to test share groups.
KAFKA_VERSION: Final = "4.2.0"
GO_TIMEOUT: Final = "40m"
# Of librdkafka's scenarios; "ak23" is Apache Kafka 2.3.
SCENARIOS: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {"auto.create.topics.enable": "true"},
    "noautocreate": {"auto.create.topics.enable": "false"},
}
# As librdkafka's own clusters are set up.
LIKE_THEIRS: Final = {
    "num.partitions": "4",
    "default.replication.factor": "3",
    "authorizer.class.name": "standard",
    "allow.everyone.if.no.acl.found": "true",
    "group.share.min.record.lock.duration.ms": "1000",
}
GO_LINE: Final = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)")

EXPECTED: Final[Mapping[str, Mapping[str, str]]] = {
    FRANZ_GO: {},
    LIBRDKAFKA: {
        "0081_admin": "alters a setting of Kerberos at a broker, and the broker has no Kerberos",
    },
}


class Outcome(NamedTuple):
    """Names of tests."""

    passed: list[str]
    failed: list[str]
    skipped: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite", choices=(FRANZ_GO, LIBRDKAFKA))
    parser.add_argument("checkout", type=Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--log", type=Path, help="Keep what the suite says in this file.")
    given = parser.parse_args()
    run = run_franz_go if given.suite == FRANZ_GO else run_librdkafka
    with tempfile.TemporaryDirectory(prefix="ottla-foreign-") as directory:
        log = given.log or Path(directory) / "suite.log"
        outcome = run(given.checkout.resolve(), given.tests, Path(directory), log)
        return report(outcome, EXPECTED[given.suite], log)


def report(outcome: Outcome, expected: Mapping[str, str], log: Path) -> int:
    """Print the outcome; the status of the program."""
    said = log.read_text(errors="replace")
    wrong = [name for name in outcome.failed if name not in expected]
    mended = [name for name in outcome.passed if name in expected]
    if wrong or not outcome.passed:
        print(said[-20_000:])
    for name in outcome.failed:
        print(f"failed: {name}" + (f" ({expected[name]})" if name in expected else ""))
    for name in mended:
        print(f"passed, but is expected to fail: {name}")
    skipped = set(outcome.skipped) - set(outcome.passed) - set(outcome.failed)
    counts = f"{len(outcome.passed)} passed, {len(outcome.failed)} failed"
    print(f"{counts}, {len(skipped)} skipped by the suite or not chosen")
    return int(bool(wrong or mended) or not outcome.passed)


def run_franz_go(checkout: Path, tests: Sequence[str], directory: Path, log: Path) -> Outcome:
    with (
        broker(directory / "nodes", nodes=3) as bootstrap,
        scram_broker(directory / "scram") as secured,
        log.open("w") as said,
    ):
        command = ["go", "test", "-count=1", f"-timeout={GO_TIMEOUT}", "-v", "./pkg/kgo"]
        subprocess.run(
            [*command, "-run", "|".join(tests)] if tests else command,
            cwd=checkout,
            env={
                **os.environ,
                "KGO_SEEDS": bootstrap,
                "KGO_TEST_RF": "3",
                "KGO_TEST_SCRAM_SEEDS": secured,
                "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}",
                "KGO_LOG_LEVEL": os.environ.get("KGO_LOG_LEVEL", "none"),
            },
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
        )
    found: dict[str, list[str]] = {"PASS": [], "FAIL": [], "SKIP": []}
    for line in log.read_text(errors="replace").splitlines():
        if match := GO_LINE.match(line):
            found[match[1]].append(match[2])
    return Outcome(found["PASS"], found["FAIL"], found["SKIP"])


def run_librdkafka(checkout: Path, tests: Sequence[str], directory: Path, log: Path) -> Outcome:
    runner = checkout / "tests" / "test-runner"
    if not runner.is_file():
        sys.exit(f"{runner} is not there: build it as {checkout}/tests/README.md says")
    tools = directory / "kafka"
    kafka_tools(tools)
    outcome = Outcome([], [], [])
    with log.open("w") as said:
        for scenario, settings in SCENARIOS.items():
            result = directory / f"{scenario}.json"
            with broker(directory / scenario, nodes=3, settings={**LIKE_THEIRS, **settings}) as at:
                config = directory / f"{scenario}.conf"
                config.write_text(f"metadata.broker.list={at}\ntest.timeout.multiplier=2\n")
                subprocess.run(
                    ["./run-test.sh", "-L", "-p2"],
                    cwd=runner.parent,
                    env={
                        **os.environ,
                        "RDKAFKA_TEST_CONF": str(config),
                        "TEST_KAFKA_VERSION": KAFKA_VERSION,
                        "TEST_SCENARIO": scenario,
                        "TEST_REPORT": str(result),
                        "KAFKA_PATH": str(tools),
                        "BROKERS": at,
                        **({"TESTS": ",".join(tests)} if tests else {}),
                    },
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            add_report(result, outcome)
    return outcome


def add_report(result: Path, outcome: Outcome) -> None:
    """The report that librdkafka's runner writes; a runner that crashed has written none."""
    if not result.is_file():
        outcome.failed.append(result.stem)
        return
    for name, test in json.loads(result.read_text())["tests"].items():
        if name == "<MAIN>" or test["state"] == "DNS":
            continue
        by = {"PASSED": outcome.passed, "SKIPPED": outcome.skipped}
        by.get(test["state"], outcome.failed).append(name)


def kafka_tools(directory: Path) -> None:
    """A directory like Apache Kafka's, as far as librdkafka's tests call its scripts."""
    sys.path.insert(0, str(ROOT))
    from tests.support.jvm import TOOLS, needed_classpath

    classpath = needed_classpath()
    (directory / "bin").mkdir(parents=True)
    for name in ("kafka-topics", "kafka-acls", "kafka-configs"):
        script = directory / "bin" / f"{name}.sh"
        script.write_text(f"#!/bin/sh\nexec java -cp '{classpath}' {TOOLS[name]} \"$@\"\n")
        script.chmod(0o755)


@contextmanager
def scram_broker(directory: Path) -> Iterator[str]:
    secret = directory.with_suffix(".password")
    secret.write_text(PASSWORD)
    secret.chmod(0o600)
    directory.mkdir()
    make = ["user", "create", USER, "--mechanism", "SCRAM-SHA-256", "--data-dir", str(directory)]
    subprocess.run([*ottla(), *make, "--password-file", str(secret)], check=True)
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with broker(directory, protocol="SASL_PLAINTEXT", settings=settings) as bootstrap:
        yield bootstrap


@contextmanager
def broker(
    directory: Path,
    *,
    nodes: int = 1,
    protocol: str = "PLAINTEXT",
    settings: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """An `ottla broker` as a process; what it says goes to stderr."""
    set_ = {"group.initial.rebalance.delay.ms": "0", **(settings or {})}
    command = [*ottla(), "broker", "--data-dir", str(directory)]
    if nodes > 1:
        command += ["--nodes", str(nodes), "--port", "0"]
    else:
        set_["listeners"] = f"{protocol}://127.0.0.1:{free_port()}"
    for key, value in set_.items():
        command += ["--set", f"{key}={value}"]
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        )
        stack.callback(process.terminate)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(READY):
            sys.exit(f"the broker did not start: {line}")
        yield line.removeprefix(READY).strip()


def ottla() -> list[str]:
    return [sys.executable, "-m", "ottla.cli"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
