"""Kafka's command-line tools say of Ottla what they say of Apache Kafka.

The same commands run against both, and the answers are compared: exit status, output, and the
exceptions by name. Left out of the comparison are ids, addresses, times, sizes and epochs, the
order of what has none, the wording of refusals, and where the defaults of settings come from. What
depends on the broker itself, such as the list of APIs, is judged for Ottla alone.

Where Apache Kafka cannot run, the reason is the skip's reason.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from ottla.broker.running.node import FEATURES
from ottla.broker.serving.apis import SERVED
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.records import Record
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import ApacheKafka, why_no_jvm
from tests.support.topics import PATIENCE, create_topic, produce, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from subprocess import CompletedProcess

Answers = dict[str, list[str]]

QUICK: Final = ("-XX:TieredStopAtLevel=1",)

NOW: Final = int(time.time() * 1000)
# Neither in order nor all different.
TIMED: Final = [Record(0, NOW + after, None, b"") for after in (-5000, -3000, -4000, 0, -1000, 0)]


class Step(NamedTuple):
    command: str
    stdin: str = ""


TOPICS: Final = {
    "create a topic": Step(
        "kafka-topics --create --topic tools --partitions 3"
        " --config segment.bytes=1048576 --config retention.ms=3600000000"
    ),
    "create it again": Step("kafka-topics --create --topic tools"),
    "too many replicas": Step("kafka-topics --create --topic r --replication-factor 3"),
    "add a partition": Step("kafka-topics --alter --topic tools --partitions 4"),
    "take partitions away": Step("kafka-topics --alter --topic tools --partitions 2"),
    "describe it": Step("kafka-topics --describe --topic tools"),
    "describe what is not there": Step("kafka-topics --describe --topic nothing"),
}
CONFIGS: Final = {
    "set a topic's": Step(
        "kafka-configs --alter --entity-type topics --entity-name tools --add-config"
        " cleanup.policy=[compact,delete],max.message.bytes=2000000"
    ),
    "delete a topic's": Step(
        "kafka-configs --alter --entity-type topics --entity-name tools"
        " --delete-config retention.ms,cleanup.policy"
    ),
    "set one that is unknown": Step(
        "kafka-configs --alter --entity-type topics --entity-name tools --add-config unheard.of=1"
    ),
    "describe the topics": Step("kafka-configs --describe --entity-type topics"),
    "describe all of a topic": Step(
        "kafka-configs --describe --all --entity-type topics --entity-name tools"
    ),
    "set the brokers'": Step(
        "kafka-configs --alter --entity-type brokers --entity-default"
        " --add-config message.max.bytes=2000000"
    ),
    "describe the brokers'": Step(
        "kafka-configs --describe --entity-type brokers --entity-default"
    ),
    "delete the brokers'": Step(
        "kafka-configs --alter --entity-type brokers --entity-default"
        " --delete-config message.max.bytes"
    ),
    "set one that Ottla has no use for": Step(
        "kafka-configs --alter --entity-type brokers --entity-default"
        " --add-config log.cleaner.threads=2"
    ),
    "describe the brokers' again": Step(
        "kafka-configs --describe --entity-type brokers --entity-default"
    ),
    "delete one that Ottla has no use for": Step(
        "kafka-configs --alter --entity-type brokers --entity-default"
        " --delete-config log.cleaner.threads"
    ),
    "verify a reassignment": Step(
        "kafka-reassign-partitions --verify --reassignment-json-file {reassignment}"
    ),
    "cancel a reassignment": Step(
        "kafka-reassign-partitions --cancel --reassignment-json-file {reassignment}"
    ),
    "set a group's": Step(
        "kafka-configs --alter --entity-type groups --entity-name new"
        " --add-config consumer.session.timeout.ms=50000"
    ),
    "describe the groups": Step("kafka-configs --describe --entity-type groups"),
}
RECORDS: Final = {
    "produce": Step(
        "kafka-console-producer --topic tools --reader-property parse.key=true"
        " --reader-property parse.headers=true --reader-property null.marker=NULL",
        "a:1,b:2\tk1\tv1\na:1\tk2\tNULL\nc:3\tk3\tv3\na:x\tk1\tv4\n",
    ),
    "consume in a classic group": Step(
        "kafka-console-consumer --topic tools --group old --from-beginning --max-messages 4"
        " --timeout-ms 20000 --isolation-level read_committed"
        " --formatter-property print.key=true --formatter-property print.headers=true"
        " --formatter-property print.partition=true --formatter-property print.offset=true"
        " --formatter-property null.literal=NULL"
    ),
    "consume in a new group": Step(
        "kafka-console-consumer --topic tools --group new --from-beginning --max-messages 4"
        " --timeout-ms 20000 --command-property group.protocol=consumer"
    ),
    "latest offsets": Step("kafka-get-offsets --topic tools --time latest"),
    "offset of the latest time": Step("kafka-get-offsets --topic timed --time max-timestamp"),
    "offset of a time": Step(f"kafka-get-offsets --topic timed --time {NOW - 3500}"),
    "offset after all": Step(f"kafka-get-offsets --topic timed --time {NOW + 1}"),
    "offsets in the tier": Step("kafka-get-offsets --topic timed --time latest-tiered"),
}
LIVE_GROUPS: Final = {
    "describe members": Step(
        "kafka-consumer-groups --describe --members --verbose --group live-old --group live-new"
    ),
    "describe offsets": Step("kafka-consumer-groups --describe --group live-old --group live-new"),
    "describe state": Step(
        "kafka-consumer-groups --describe --state --group live-old --group live-new"
    ),
    "delete one with members": Step("kafka-consumer-groups --delete --group live-old"),
    "reset one with members": Step(
        "kafka-consumer-groups --reset-offsets --to-earliest --execute --group live-new"
        " --topic tools"
    ),
    "delete offsets in use": Step(
        "kafka-consumer-groups --delete-offsets --group live-old --topic tools:0"
    ),
}
GROUPS: Final = {
    "list states": Step("kafka-consumer-groups --list --state"),
    "list types": Step("kafka-groups --list"),
    "describe all": Step("kafka-consumer-groups --describe --all-groups"),
    "describe none": Step("kafka-consumer-groups --describe --group nothing"),
    "reset": Step(
        "kafka-consumer-groups --reset-offsets --shift-by -1 --group old --all-topics --execute"
    ),
    "delete offsets": Step("kafka-consumer-groups --delete-offsets --group old --topic tools:0"),
    "delete": Step("kafka-consumer-groups --delete --group new --group nothing"),
    "describe what is left": Step("kafka-consumer-groups --describe --group old"),
}
ENDS: Final = {
    "delete records": Step("kafka-delete-records --offset-json-file {offsets}"),
    "earliest offsets": Step("kafka-get-offsets --topic tools --time earliest"),
    "log directories": Step("kafka-log-dirs --describe --topic-list tools"),
    "producers": Step("kafka-transactions describe-producers --topic tools --partition 0"),
    "endpoints": Step("kafka-cluster list-endpoints"),
    "delete the topic": Step("kafka-topics --delete --topic tools"),
    "delete it again": Step("kafka-topics --delete --topic tools"),
    "list topics": Step("kafka-topics --list"),
}
CHANGING: Final = {"--create", "--alter", "--delete"}
# The broker learns of a change from its controller, when the tool has been told of it already.
KAFKA_SETTLES: Final = 0.3
NAMES: Final = [*TOPICS, *CONFIGS, *RECORDS, *LIVE_GROUPS, *GROUPS, *ENDS]


@pytest.fixture(scope="module", autouse=True)
def jvm() -> None:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def tools(jvm: None) -> Iterator[JavaTools]:
    with kept_tools() as kept:
        yield kept


def normal(done: CompletedProcess[str]) -> list[str]:
    """The answer without what may differ; lines in order of the alphabet, most tools have none."""
    errors = set(re.findall(r"\b(\w+Exception)\b", done.stderr)) - {"ExecutionException"}
    text = done.stdout
    for pattern, plain in (
        (r"TopicId: \S+", "TopicId"),
        (r"127\.0\.0\.1:\d+ +", "ADDRESS "),
        (r"127\.0\.0\.1 \d+ ", "ADDRESS "),
        (r"\S*[0-9a-f]{8}-[0-9a-f]{4}-\S+", "MEMBER"),
        (r"(live-new .*?)[\w+/-]{22}( +/127)", r"\1MEMBER\2"),
        (r"(live-new +MEMBER.*) \d+ +(tools:\S+) +\d+ +(tools:\S+)", r"\1 \2 \3"),
        (r" synonyms=\{.*\}", ""),
        (r'"size":\d+', '"size"'),
        (r'"logDir":".*?"', '"logDir"'),
        (r"(LastTimestamp.*\n\d+ .*?)\d{13}", r"\1TIME"),
        (r"(Error while executing topic command) : .*", r"\1"),
        (r"(Exception): .*", r"\1"),
        # Kafka sets it for the cluster where it may elect from beyond those in sync.
        (r"min\.insync\.replicas=1,?( sensitive=false)?", ""),
        # Dead letters of share groups (KIP-1191): Kafka has them from 4.4 on.
        (r"errors\.deadletterqueue\S+=\S* sensitive=false", ""),
        (r"ottla\.\S+=\S* sensitive=false", ""),
        (r" +", " "),
    ):
        text = re.sub(pattern, plain, text)
    text = re.sub(r"Configs: (.*)", lambda m: "Configs: " + ",".join(sorted(m[1].split(","))), text)
    lines = sorted(line.strip() for line in text.splitlines() if line.strip())
    return [f"status {done.returncode}", *sorted(errors), *lines]


@contextmanager
def live_group(bootstrap: str, group: str, protocol: str) -> Iterator[None]:
    """A group with one member, which has committed the first offset of one partition."""
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"member-of-{group}",
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe(["tools"])
    deadline = time.monotonic() + PATIENCE
    while not member.assignment():
        assert time.monotonic() < deadline, f"{group} got no partitions"
        member.poll(0.1)
    member.commit(offsets=[Position("tools", 0, 0), Position("tools", 1, 1)], asynchronous=False)
    try:
        yield
    finally:
        member.close()


def scenario(
    tools: JavaTools, bootstrap: str, files: Mapping[str, Path], settle: float = 0.0
) -> Answers:
    """Run it all on one broker, which shows changes after `settle` seconds."""
    answers = {}

    def take(steps: dict[str, Step]) -> None:
        for name, (command, stdin) in steps.items():
            call = command.format_map(files).split()
            answers[name] = normal(tools.run(*call, bootstrap=bootstrap, stdin=stdin))
            if not CHANGING.isdisjoint(call):
                time.sleep(settle)

    create_topic(bootstrap, "timed")
    produce(bootstrap, "timed", TIMED)
    take(TOPICS)
    take(CONFIGS)
    take(RECORDS)
    with (
        live_group(bootstrap, "live-old", "classic"),
        live_group(bootstrap, "live-new", "consumer"),
    ):
        take(LIVE_GROUPS)
    take(GROUPS)
    take(ENDS)
    return answers


@pytest.fixture(scope="module")
def ottla() -> Iterator[EmbeddedBroker]:
    """One of its own: what others do to the session's broker would show in the lists."""
    with EmbeddedBroker(config={"offsets.topic.num.partitions": "1"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def answers(
    tools: JavaTools, ottla: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Answers, Answers]:
    """Of Ottla and of Apache Kafka."""
    directory = tmp_path_factory.mktemp("tools")
    files = {name: directory / f"{name}.json" for name in ("offsets", "reassignment")}
    partitions = [{"topic": "tools", "partition": index} for index in (0, 1)]
    for file, more in (
        (files["offsets"], {"offset": -1}),
        (files["reassignment"], {"replicas": [1]}),
    ):
        file.write_text(json.dumps({"partitions": [p | more for p in partitions], "version": 1}))
    config = {"offsets.topic.num.partitions": "1"}
    with ApacheKafka(config=config, heap="512m", jvm_options=QUICK) as kafka:
        return (
            scenario(tools, ottla.bootstrap, files),
            scenario(tools, kafka.bootstrap, files, settle=KAFKA_SETTLES),
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_says_the_same_of_both(answers: tuple[Answers, Answers], name: str) -> None:
    of_ottla, of_kafka = answers
    assert of_ottla[name] == of_kafka[name]


def test_the_comparison_is_of_answers_that_say_something(answers: tuple[Answers, Answers]) -> None:
    of_ottla, _ = answers
    assert of_ottla["consume in a classic group"] == [
        "status 0",
        "Partition:0\tOffset:0\tc:3\tk3\tv3",
        "Partition:1\tOffset:0\ta:1,b:2\tk1\tv1",
        "Partition:1\tOffset:1\ta:1\tk2\tNULL",
        "Partition:1\tOffset:2\ta:x\tk1\tv4",
    ]
    assert of_ottla["offset of the latest time"] == ["status 0", "timed:0:3"]
    assert of_ottla["offset of a time"] == ["status 0", "timed:0:1"]
    assert "consumer.session.timeout.ms=50000 sensitive=false" in of_ottla["describe the groups"]
    assert "InvalidConfigurationException" in of_ottla["set one that is unknown"]
    assert "status 0" in of_ottla["verify a reassignment"]
    row = "live-old tools 1 1 3 2 MEMBER /127.0.0.1 member-of-live-old"
    assert row in of_ottla["describe offsets"]


def test_the_performance_tools_run(tools: JavaTools, ottla: EmbeddedBroker) -> None:
    ottla.create_topic("performance", partitions=2)
    options = "--num-records 20000 --record-size 100 --throughput -1"
    produced = tools.run(
        *f"kafka-producer-perf-test --topic performance {options}".split(),
        *("--command-property", "compression.type=lz4"),
        bootstrap=ottla.bootstrap,
    )
    assert re.match(r"20000 records sent, [\d.]+ records/sec", produced.stdout), produced
    consumed = tools.run(
        *("kafka-consumer-perf-test", "--topic", "performance", "--num-records", "20000"),
        bootstrap=ottla.bootstrap,
    )
    header, figures = consumed.stdout.splitlines()
    by_name = dict(zip(header.split(", "), figures.split(", "), strict=True))
    assert by_name["data.consumed.in.nMsg"] == "20000"
    assert len(read_all(ottla.bootstrap, "performance")) == 20_000


def test_the_tools_see_which_apis_and_features_are_served(
    tools: JavaTools, ottla: EmbeddedBroker
) -> None:
    said = tools.run("kafka-broker-api-versions", bootstrap=ottla.bootstrap).stdout
    listed = re.findall(r"\((\d+)\): (\d+)(?: to \d+)? \[usable: (\d+)\]", said)
    assert {int(key): (int(low), int(used)) for key, low, used in listed} == {
        key: (
            served.min_version if served.listed_min is None else served.listed_min,
            served.max_version,
        )
        for key, served in SERVED.items()
    }
    said = tools.run("kafka-features", "describe", bootstrap=ottla.bootstrap).stdout
    found = re.findall(r"Feature: (\S+) .*FinalizedVersionLevel: (\S+)", said)
    # The tool writes this one level as the release it stands for.
    levels = {name: str(level) for name, level in FEATURES.items()}
    assert dict(found) == {**levels, "metadata.version": "4.0-IV3"}
