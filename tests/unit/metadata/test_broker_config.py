"""Loading a broker's configuration from file, environment and command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.metadata.config.broker import (
    MAX_FILE_BYTES,
    BrokerConfig,
    key_of_variable,
    load_broker_config,
)
from ottla.metadata.config.values import BROKER_CONFIGS
from ottla.metadata.errors import ConfigError, InvalidConfig, UnknownConfig

if TYPE_CHECKING:
    from pathlib import Path

TOML = """
"max.connections.per.ip" = 5
num.partitions = 3
listeners = ["PLAINTEXT://:9092", "OTHER://[::1]:0"]
auto.create.topics.enable = false

[log]
segment.bytes = 2097152
dirs = "a"

[log.cleaner]
min.cleanable.ratio = 0.25

[rsm.config]
url = "s3://bucket/prefix"
region = "north"
"""

PROPERTIES = r"""
# a comment
! another
num.partitions=3
log.dirs : a,\
           b
auto.create.topics.enable   false
broker.rack = one\=two\u0021\
"""


def test_nothing_gives_the_defaults() -> None:
    config = load_broker_config()
    assert config.static == {}
    assert config.node_id == 1
    assert config.get_list("listeners") == ("PLAINTEXT://127.0.0.1:9092",)
    assert config.get_str("ottla.flush.mode") == "journal"
    assert config.parsed("log.retention.ms") is None


def test_toml(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(TOML)
    config = load_broker_config(path)
    assert config.get_int("max.connections.per.ip") == 5
    assert config.get_int("num.partitions") == 3
    assert config.get_list("listeners") == ("PLAINTEXT://:9092", "OTHER://[::1]:0")
    assert config.get_bool("auto.create.topics.enable") is False
    assert config.get_int("log.segment.bytes") == 2097152
    assert config.parsed("log.cleaner.min.cleanable.ratio") == 0.25
    assert config.store_options() == {"url": "s3://bucket/prefix", "region": "north"}


def test_properties(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES)
    config = load_broker_config(path)
    assert config.get_int("num.partitions") == 3
    assert config.get_list("log.dirs") == ("a", "b")
    assert config.get_bool("auto.create.topics.enable") is False
    assert config.get_str("broker.rack") == "one=two!"


def test_later_sources_win(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('num.partitions = 2\nnode.id = 2\nbroker.rack = "file"')
    config = load_broker_config(
        path,
        sets=["num.partitions=3", "num.partitions = 4"],
        env={"OTTLA_NUM_PARTITIONS": "5", "OTTLA_NODE_ID": "6", "HOME": "/"},
    )
    assert config.get_int("num.partitions") == 4
    assert config.node_id == 6
    assert config.get_str("broker.rack") == "file"


@pytest.mark.parametrize("key", BROKER_CONFIGS)
def test_every_key_has_a_variable(key: str) -> None:
    variable = "OTTLA_" + key.removeprefix("ottla.").upper().replace(".", "_")
    assert key_of_variable(variable) == key


@pytest.mark.parametrize(
    ("sets", "env", "message"),
    [
        (["num.partition=3"], {}, r"in --set: expected num\.partitions \(the nearest"),
        (["num.partitions"], {}, "expected key=value"),
        (["num.partitions=0"], {}, r"num\.partitions: expected 1 or above, got '0'"),
        # As the segments of any topic: the internal ones could not be made otherwise.
        (["offsets.topic.segment.bytes=2000"], {}, "expected 1048576 or above, got '2000'"),
        (["transaction.state.log.segment.bytes=2000"], {}, "expected 1048576 or above"),
        ([], {"OTTLA_NUM_PARTITION": "3"}, r"in OTTLA_NUM_PARTITION: expected num\.partitions"),
        (["listeners="], {}, "listeners: expected like PLAINTEXT"),
        (["listeners=localhost:9092"], {}, "listeners: expected like PLAINTEXT"),
        (["log.dirs="], {}, r"log\.dirs"),
        (["ottla.flush.mode=never"], {}, "one of group, journal, os"),
        (["group.share.session.timeout.ms=1"], {}, r"45000 to 60000 \(group\.share\.min"),
        (
            ["group.consumer.min.session.timeout.ms=1", "group.consumer.session.timeout.ms=5000"],
            {},
            r"group\.consumer\.heartbeat\.interval\.ms: expected less than",
        ),
        (["group.share.max.share.sessions=5"], {}, r"at least group\.share\.max\.size"),
    ],
)
def test_what_is_wrong_is_named(sets: list[str], env: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_broker_config(sets=sets, env=env)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"num.partitions = ", "expected TOML"),
        ("a.toml", b"num.partitions = 1979-05-27", "true or false"),
        ("a.toml", b"num.partition = 1", r"a\.toml: expected num\.partitions"),
        ("a.toml", b"\xff", "UTF-8"),
        ("a.toml", b"#" * (MAX_FILE_BYTES + 1), "at most"),
        ("a.yaml", b"", r"\.toml or \.properties"),
        ("a.properties", b"num.partition 1", r"a\.properties: expected num\.partitions"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_broker_config(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_broker_config(tmp_path / "a.toml")


def test_a_configuration_made_by_hand_is_checked_too() -> None:
    with pytest.raises(UnknownConfig):
        BrokerConfig({"num.partition": "1"})
    with pytest.raises(InvalidConfig):
        BrokerConfig({"num.partitions": "none"})
