"""Kafka's own configuration is understood; every key of ours is read by something."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.broker.running.settings import Settings
from ottla.log.config import LogConfig
from ottla.metadata.config import kafka_keys
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.config.broker_keys import BROKER_CONFIGS, broker_config_def
from ottla.metadata.config.checks import check_broker_configs
from ottla.metadata.config.keys import GROUP_CONFIGS, TOPIC_CONFIGS
from ottla.metadata.config.security_keys import PER_LISTENER, SECURITY_CONFIGS, refusal
from ottla.metadata.config.values import resolve_broker_config
from ottla.metadata.errors import ConfigError, UnknownConfig
from ottla.metadata.image import MetadataImage

if TYPE_CHECKING:
    from collections.abc import Iterator

# Kafka 4.3's config/server.properties without its comments.
STOCK = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\
SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_the_configuration_that_kafka_ships(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK)
    config = load_broker_config(file)
    settings = Settings(config)
    assert [listener.name for listener in settings.listeners] == ["PLAINTEXT"]
    assert config.get_list("log.dirs") == ("/tmp/kraft-combined-logs",)
    (warning,) = caplog.messages
    named = set(warning.partition(": ")[2].split(", "))
    assert named == {
        "controller.quorum.bootstrap.servers",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "offsets.topic.replication.factor",
        "process.roles",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    }


def test_all_unknown_keys_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.thread=8\nnum.partition=1\nprocess.roles=broker\n")
    with pytest.raises(UnknownConfig) as refused:
        load_broker_config(file, ["colour=red"])
    text = str(refused.value)
    assert "num.io.threads (the nearest" in text
    assert "num.partitions (the nearest" in text
    assert "'colour' in --set: expected a known key" in text
    assert "process.roles" not in text


@pytest.mark.parametrize(
    "key",
    [
        *(definition.name for definition in SECURITY_CONFIGS),
        *(
            f"listener.name.plaintext.{key}"
            for key in sorted(PER_LISTENER - {"max.connections", "max.connection.creation.rate"})
        ),
        "listener.name.plaintext.plain.sasl.jaas.config",
        "sasl.jaas.config.file",
        "listener.name.plaintext.plain.sasl.jaas.config.file",
    ],
)
def test_case_88_what_protects_a_cluster_cannot_be_altered_over_the_wire(key: str) -> None:
    definition = broker_config_def(key)
    assert definition is not None
    assert not definition.dynamic
    with pytest.raises(ConfigError, match="can change while the broker runs"):
        check_broker_configs({key: definition.default or "x"})


def test_only_controllers_is_no_broker() -> None:
    config = load_broker_config(
        sets=["listeners=CONTROLLER://:9093", "controller.listener.names=CONTROLLER"]
    )
    with pytest.raises(ConfigError, match="listener"):
        Settings(config)


def test_older_names_of_keys() -> None:
    config = load_broker_config(sets=["broker.id=7", "log.dir=a"])
    assert config.node_id == 7
    assert config.get_list("log.dirs") == ("a",)
    both = load_broker_config(sets=["node.id=8", "broker.id=7"])
    assert both.node_id == 8


def test_variables_of_commands_tests_and_secrets_are_not_the_brokers() -> None:
    names = ["BOOTSTRAP", "CONFIG", "COMMAND_CONFIG", "SECRET_PASSWORD", "TEST_SEED"]
    config = load_broker_config(env={f"OTTLA_{name}": "x" for name in names})
    assert config.static == {}


@pytest.mark.parametrize("key", ["log.cleaner.threads", "sasl.kerberos.min.time.before.relogin"])
def test_a_dynamic_setting_without_effect_is_taken_and_shown(key: str) -> None:
    check_broker_configs({key: "2"})
    image = MetadataImage(broker_configs={"": {key: "2"}})
    shown = resolve_broker_config(image, load_broker_config())
    assert shown[key].value == "2"


@pytest.mark.parametrize(
    "key", ["sasl.kerberos.service.name", "sasl.kerberos.principal.to.local.rules"]
)
def test_kerberos_itself_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="not supported"):
        check_broker_configs({key: "x"})


def test_a_key_is_honoured_or_without_effect_not_both() -> None:
    without = kafka_keys.WITHOUT_EFFECT | kafka_keys.DROPPED_BY_KAFKA | kafka_keys.SYNONYMS.keys()
    assert not without & BROKER_CONFIGS.keys()
    assert not any(map(refusal, [*without, *BROKER_CONFIGS]))


# Clients set them on topics of any Kafka; nothing here replicates, throttles or compresses anew.
TOPIC_KEYS_WITHOUT_EFFECT = {
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "preallocate",
    "segment.jitter.ms",
    "unclean.leader.election.enable",
}


def test_every_key_is_read_by_something() -> None:
    read = set(_read_keys())
    topics = {key for key in TOPIC_CONFIGS if key in read or key in _LOG_KEYS}
    assert TOPIC_CONFIGS.keys() - topics == TOPIC_KEYS_WITHOUT_EFFECT
    assert GROUP_CONFIGS.keys() - read == set()
    inherited = {
        synonym.key
        for definition in (*TOPIC_CONFIGS.values(), *GROUP_CONFIGS.values())
        for synonym in definition.synonyms
    }
    bounds = {
        bound
        for definition in (*BROKER_CONFIGS.values(), *GROUP_CONFIGS.values())
        for bound in definition.bounds or ()
    }
    # Those of OAUTHBEARER are put together from their common beginning.
    composed = {key for key in BROKER_CONFIGS if key.startswith("sasl.oauthbearer.")}
    assert BROKER_CONFIGS.keys() - read - inherited - bounds - composed == set()


_LOG_KEYS = {field.name.replace("_", ".") for field in fields(LogConfig)}


def _read_keys() -> Iterator[str]:
    """What stands in the sources as text, outside the tables; `f"a.{x}.b"` is any such key."""
    known = {**BROKER_CONFIGS, **TOPIC_CONFIGS, **GROUP_CONFIGS}
    (root,) = ottla.__path__
    for file in Path(root).rglob("*.py"):
        if file.parent.name == "config" and file.name.endswith("keys.py"):
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr) and file.parent.name == "tiering":
                first = node.values[0]
                if isinstance(first, ast.Constant) and "." in str(first.value):
                    pattern = "".join(
                        re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z]+"
                        for part in node.values
                    )
                    yield from (key for key in known if re.fullmatch(pattern, key))
