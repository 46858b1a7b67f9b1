"""The tables of keys, resolution of values, and what may be set together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.changes.apply import apply_all
from ottla.metadata.changes.configs import SetConfigs
from ottla.metadata.changes.topics import CreateTopic
from ottla.metadata.config.broker import BrokerConfig
from ottla.metadata.config.broker_keys import broker_config_def
from ottla.metadata.config.checks import (
    check_broker_configs,
    check_group_configs,
    check_topic_configs,
)
from ottla.metadata.config.table_keys import TABLE_CONFIGS
from ottla.metadata.config.types import MAX_VALUE_LENGTH, ConfigDef, ConfigType
from ottla.metadata.config.values import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigSource,
    ConfigSynonym,
    append_to_list,
    resolve_broker_config,
    resolve_group_config,
    resolve_topic_config,
    subtract_from_list,
    topic_values,
    validate,
)
from ottla.metadata.errors import ConfigError, InvalidConfig, UnknownConfig
from ottla.metadata.image import CLUSTER_DEFAULT, MetadataImage, ResourceType, random_topic_id

ALL = [*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values(), *GROUP_CONFIGS.values()]
# As in Kafka: these have no default at the broker.
WITHOUT_BROKER_KEY = {
    "errors.deadletterqueue.group.enable",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    *(one.name for one in TABLE_CONFIGS),
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
}
PLAIN = BrokerConfig()
TIERED = BrokerConfig({"remote.log.storage.system.enable": "true"})


def image_with(
    topic: dict[str, str] | None = None,
    broker: dict[str, str] | None = None,
    default: dict[str, str] | None = None,
    group: dict[str, str] | None = None,
) -> MetadataImage:
    return apply_all(
        MetadataImage(),
        [
            CreateTopic("t", random_topic_id(), ((1,),), topic or {}),
            SetConfigs(ResourceType.BROKER, "1", dict(broker or {})),
            SetConfigs(ResourceType.BROKER, CLUSTER_DEFAULT, dict(default or {})),
            SetConfigs(ResourceType.GROUP, "g", dict(group or {})),
        ],
    )


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.name)
def test_every_definition_is_sound(definition: ConfigDef) -> None:
    assert definition.doc.endswith(".")
    if definition.default is not None:
        definition.parse(definition.default)
    for key, factor in definition.synonyms:
        synonym = BROKER_CONFIGS[key]
        assert factor >= 1
        if synonym.default is not None and len(definition.synonyms) == 1:
            assert synonym.default == definition.default
            assert synonym.rule == definition.rule or definition.name in GROUP_CONFIGS
    for bound in definition.bounds or ():
        assert BROKER_CONFIGS[bound].type is definition.type


def test_every_topic_key_has_its_broker_key_where_kafka_has_one() -> None:
    lacking = {name for name, each in TOPIC_CONFIGS.items() if not each.synonyms}
    assert lacking == WITHOUT_BROKER_KEY
    assert len(TOPIC_CONFIGS) - len(TABLE_CONFIGS) == 35


def test_nothing_set_gives_the_defaults_of_the_table() -> None:
    topic = resolve_topic_config(MetadataImage(), "t", PLAIN)
    assert {name: each.value for name, each in topic.items()} == {
        name: each.default for name, each in TOPIC_CONFIGS.items()
    }
    group = resolve_group_config(MetadataImage(), "g", PLAIN)
    assert {name: each.value for name, each in group.items()} == {
        name: each.default for name, each in GROUP_CONFIGS.items()
    }
    for entry in [*topic.values(), *group.values()]:
        assert entry.source is ConfigSource.DEFAULT_CONFIG
        assert len(entry.synonyms) == 1


def test_the_whole_chain_in_order() -> None:
    image = image_with(
        topic={"retention.ms": "1"},
        broker={"log.retention.ms": "2"},
        default={"log.retention.ms": "3"},
    )
    broker = BrokerConfig({"log.retention.ms": "4", "log.retention.minutes": "5"})
    entry = resolve_topic_config(image, "t", broker)["retention.ms"]
    assert (entry.value, entry.source) == ("1", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ConfigSynonym("log.retention.ms", "2", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ConfigSynonym("log.retention.ms", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ConfigSynonym("log.retention.ms", "4", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("log.retention.minutes", "5", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )
    other = resolve_topic_config(image, "not there", BrokerConfig({"node.id": "2"}))
    assert other.get_int("retention.ms") == 3


_few = st.dictionaries(
    st.sampled_from(
        ["log.retention.ms", "log.retention.minutes", "log.retention.hours", "log.retention.bytes"]
    ),
    st.integers(14, 16_000_000).map(str),
)


@given(
    st.dictionaries(
        st.sampled_from(["retention.ms", "retention.bytes"]), st.integers(14, 99).map(str)
    ),
    _few,
    _few,
    _few,
)
def test_values_alone_are_those_of_the_chain(
    topic: dict[str, str], broker: dict[str, str], default: dict[str, str], static: dict[str, str]
) -> None:
    image, config = image_with(topic, broker, default), BrokerConfig(static)
    chain = resolve_topic_config(image, "t", config)
    expected = {name: each.value for name, each in chain.items() if each.value is not None}
    assert topic_values(image, "t", config) == expected


@pytest.mark.parametrize(
    ("static", "value"),
    [
        ({"log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "3"}, 10_800_000),
    ],
)
def test_units_are_converted(static: dict[str, str], value: int) -> None:
    config = resolve_topic_config(MetadataImage(), "t", BrokerConfig(static))
    assert config.get_int("retention.ms") == value


def test_typed_access() -> None:
    config = resolve_topic_config(MetadataImage(), "t", PLAIN)
    assert config.get_bool("preallocate") is False
    assert config.parsed("min.cleanable.dirty.ratio") == 0.5
    assert config.get_str("compression.type") == "producer"
    assert config.get_list("cleanup.policy") == ("delete",)
    assert len(config) == len(list(config)) == len(TOPIC_CONFIGS)
    with pytest.raises(TypeError, match="preallocate is False, not of type int"):
        config.get_int("preallocate")


def test_broker_configs_resolve_with_the_keys_of_the_object_store() -> None:
    broker = BrokerConfig({"rsm.config.secret": "s", "num.partitions": "3"})
    config = resolve_broker_config(image_with(broker={"max.connections": "9"}), broker)
    assert config.get_int("max.connections") == 9
    assert config["max.connections"].source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert config["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert config["rsm.config.secret"].definition.sensitive
    assert config["log.retention.ms"].value is None
    assert config["log.retention.ms"].synonyms == ()


def test_group_values_are_clamped_to_what_the_broker_allows_now() -> None:
    image = image_with(group={"share.delivery.count.limit": "10"})
    strict = BrokerConfig({"group.share.max.delivery.count.limit": "6"})
    assert resolve_group_config(image, "g", strict).get_int("share.delivery.count.limit") == 6
    entry = resolve_group_config(image, "g", PLAIN)["share.delivery.count.limit"]
    assert (entry.value, entry.source) == ("10", ConfigSource.DYNAMIC_GROUP_CONFIG)
    lax = BrokerConfig({"group.share.delivery.count.limit": "7"})
    assert resolve_group_config(image, "h", lax).get_int("share.delivery.count.limit") == 7


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "1_048_576"),
        ("segment.bytes", "1e9"),
        ("segment.bytes", ""),
        ("retention.ms", "-2"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "9" * 5000),
        ("preallocate", "yes"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "shred"),
        ("compression.type", "none"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("leader.replication.throttled.replicas", "0-1"),
    ],
)
def test_invalid_topic_values_are_named(key: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        validate(TOPIC_CONFIGS, key, value)
    assert error.value.where == key
    assert repr(value[:200]) in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "parsed"),
    [
        ("segment.bytes", " 1048576 ", 1048576),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "", ()),
        ("min.cleanable.dirty.ratio", "1", 1.0),
    ],
)
def test_valid_topic_values(key: str, value: str, parsed: object) -> None:
    assert validate(TOPIC_CONFIGS, key, value) == parsed


@pytest.mark.parametrize(
    "value", ["latest", "earliest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"]
)
def test_where_share_groups_may_start(value: str) -> None:
    assert validate(GROUP_CONFIGS, "share.auto.offset.reset", value) == value


@pytest.mark.parametrize("value", ["none", "by_duration:", "by_duration:P", "by_duration:-PT1H"])
def test_where_share_groups_may_not_start(value: str) -> None:
    with pytest.raises(InvalidConfig, match="PT1H30M"):
        validate(GROUP_CONFIGS, "share.auto.offset.reset", value)


def test_unknown_keys_name_the_nearest() -> None:
    with pytest.raises(UnknownConfig, match=r"retention\.ms \(the nearest"):
        validate(TOPIC_CONFIGS, "retention.mss", "1")
    with pytest.raises(UnknownConfig, match=r"log\.dirs \(the nearest"):
        validate(BROKER_CONFIGS, "log.dir", "/data")
    with pytest.raises(UnknownConfig, match="expected a known key"):
        validate(GROUP_CONFIGS, "☂" * 10_000, "1")


def test_keys_of_the_object_store_are_handed_on_and_hidden() -> None:
    assert validate(BROKER_CONFIGS, "rsm.config.anything.at.all", "x") == "x"
    assert broker_config_def("rsm.config.") is None
    with pytest.raises(InvalidConfig, match="hidden"):
        validate(BROKER_CONFIGS, "rsm.config.secret", "x" * (MAX_VALUE_LENGTH + 1))


@given(
    st.sampled_from([*TOPIC_CONFIGS.items(), *GROUP_CONFIGS.items()]),
    st.text() | st.integers().map(str) | st.floats().map(str),
)
def test_any_text_is_parsed_or_refused_by_name(item: tuple[str, ConfigDef], value: str) -> None:
    key, definition = item
    try:
        parsed = definition.parse(value)
    except InvalidConfig as error:
        where = error.where
    else:
        where = key
        assert definition.rule is None or definition.rule.accepts(parsed)
    assert where == key


def test_lists_are_appended_to_and_subtracted_from() -> None:
    policy = TOPIC_CONFIGS["cleanup.policy"]
    assert append_to_list(policy, "delete", "compact, delete") == "delete,compact"
    assert append_to_list(policy, "", "compact") == "compact"
    assert subtract_from_list(policy, "delete,compact", "delete") == "compact"
    assert subtract_from_list(policy, "delete", "compact") == "delete"
    with pytest.raises(InvalidConfig, match=r"retention\.ms: expected a list"):
        append_to_list(TOPIC_CONFIGS["retention.ms"], "1", "2")


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"remote.storage.enable": "true"},
        {"remote.storage.enable": "true", "local.retention.ms": "604800000"},
        {"remote.storage.enable": "true", "local.retention.ms": "-1", "retention.ms": "-1"},
        {"remote.storage.enable": "true", "remote.log.copy.disable": "true"},
        {"local.retention.bytes": "5", "retention.bytes": "3"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    ],
)
def test_topic_configs_that_go_together(overrides: dict[str, str]) -> None:
    check_topic_configs(MetadataImage(), "t", overrides, TIERED)


@pytest.mark.parametrize(
    ("topic", "overrides", "broker", "key"),
    [
        ("t", {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, PLAIN, "min.comp"),
        ("t", {"remote.storage.enable": "true"}, PLAIN, r"remote\.log\.storage\.system\.enable"),
        ("__consumer_offsets", {"remote.storage.enable": "true"}, TIERED, "internal"),
        ("__remote_log_metadata", {"remote.storage.enable": "true"}, TIERED, "internal"),
        ("t", {"remote.storage.enable": "true", "cleanup.policy": "compact"}, TIERED, "compact"),
        ("t", {"remote.storage.enable": "true", "local.retention.ms": "-1"}, TIERED, "local"),
        (
            "t",
            {
                "remote.storage.enable": "true",
                "local.retention.bytes": "5",
                "retention.bytes": "3",
            },
            TIERED,
            "local",
        ),
        (
            "t",
            {
                "remote.storage.enable": "true",
                "remote.log.copy.disable": "true",
                "local.retention.ms": "5",
            },
            TIERED,
            r"copy\.disable",
        ),
        ("__x", {"ottla.table.enable": "true"}, PLAIN, "false for an internal topic"),
        ("ottla.tables", {"ottla.table.enable": "true"}, PLAIN, "false for an internal topic"),
        ("t", {"ottla.table.commit.interval.ms": "999"}, PLAIN, r"interval\.ms: expected 1000"),
        ("t", {"ottla.table.partition": "day(shop)"}, PLAIN, r"table\.partition"),
        (
            "t",
            {"ottla.table.enable": "true", "ottla.table.value.format": "json"},
            PLAIN,
            r"value\.schema: expected the schema",
        ),
        ("t", {"retention.ms": "soon"}, PLAIN, r"retention\.ms"),
        ("t", {"retention": "1"}, PLAIN, "nearest"),
    ],
)
def test_topic_configs_that_do_not(
    topic: str, overrides: dict[str, str], broker: BrokerConfig, key: str
) -> None:
    with pytest.raises(ConfigError, match=key):
        check_topic_configs(MetadataImage(), topic, overrides, broker)


@pytest.mark.parametrize(
    ("theirs", "topic", "mine"),
    [
        ({}, "t", {"ottla.table.name": "other"}),
        ({}, "x", {"ottla.table.name": "t"}),
        ({"ottla.table.name": "a_b"}, "a.b", {}),
        ({}, "t__dlq", {}),
        ({"ottla.table.name": "x__dlq"}, "x", {}),
    ],
)
def test_names_of_tables_do_not_clash_or_change(
    theirs: dict[str, str], topic: str, mine: dict[str, str]
) -> None:
    on = {"ottla.table.enable": "true"}
    with pytest.raises(InvalidConfig, match=r"ottla\.table\.name"):
        check_topic_configs(image_with(topic={**on, **theirs}), topic, {**on, **mine}, PLAIN)
    check_topic_configs(image_with(topic=theirs), topic, {**on, **mine}, PLAIN)


def test_a_raw_table_becomes_a_typed_one_and_stays_so() -> None:
    on = {"ottla.table.enable": "true"}
    json = {"ottla.table.value.format": "json", "ottla.table.value.schema": "a int"}
    check_topic_configs(image_with(topic=on), "t", {**on, **json}, PLAIN)
    with pytest.raises(InvalidConfig, match=r"value\.format: expected json while"):
        check_topic_configs(image_with(topic={**on, **json}), "t", on, PLAIN)
    check_topic_configs(image_with(topic=json), "t", on, PLAIN)


def test_a_tier_is_left_only_with_its_data_deleted() -> None:
    image = image_with(topic={"remote.storage.enable": "true"})
    with pytest.raises(InvalidConfig, match=r"remote\.log\.delete\.on\.disable=true"):
        check_topic_configs(image, "t", {}, TIERED)
    check_topic_configs(image, "t", {"remote.log.delete.on.disable": "true"}, TIERED)


@pytest.mark.parametrize(
    ("overrides", "fits"),
    [
        ({"share.session.timeout.ms": "50000"}, True),
        ({"share.session.timeout.ms": "44999"}, False),
        ({"share.delivery.count.limit": "11"}, False),
        ({"consumer.heartbeat.interval.ms": "15000"}, True),
        ({"consumer.heartbeat.interval.ms": "15001"}, False),
        ({"share.record.lock.duration.ms": "1000"}, False),
        ({"share.isolation.level": "serializable"}, False),
    ],
)
def test_group_configs_stay_in_the_brokers_bounds(overrides: dict[str, str], fits: bool) -> None:
    if fits:
        check_group_configs(MetadataImage(), overrides, PLAIN)
    else:
        with pytest.raises(InvalidConfig, match=next(iter(overrides))):
            check_group_configs(MetadataImage(), overrides, PLAIN)


def test_a_heartbeat_is_shorter_than_a_session() -> None:
    quick = BrokerConfig({"group.share.min.session.timeout.ms": "6000"})
    with pytest.raises(InvalidConfig, match=r"share\.heartbeat\.interval\.ms"):
        check_group_configs(
            MetadataImage(),
            {"share.session.timeout.ms": "6000", "share.heartbeat.interval.ms": "6000"},
            quick,
        )


def test_only_dynamic_broker_keys_can_be_altered() -> None:
    check_broker_configs({"log.retention.ms": "5"})
    with pytest.raises(InvalidConfig, match="listeners: expected a key that can change"):
        check_broker_configs({"listeners": "PLAINTEXT://:1"})
    with pytest.raises(InvalidConfig, match=r"log\.retention\.ms"):
        check_broker_configs({"log.retention.ms": "-5"})


def test_types_are_the_protocols() -> None:
    assert [kind.value for kind in ConfigType] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("name", "fits"),
    [("", True), ("dlq.orders", True), ("orders", False), ("dlq.or ders", False), ("__x", False)],
)
def test_dead_letter_topics_have_names_of_their_own(name: str, fits: bool) -> None:
    overrides = {"errors.deadletterqueue.topic.name": name}
    if fits:
        check_group_configs(MetadataImage(), overrides, PLAIN)
    else:
        with pytest.raises(InvalidConfig):
            check_group_configs(MetadataImage(), overrides, PLAIN)
    anything = BrokerConfig({"errors.deadletterqueue.topic.name.prefix": ""})
    check_group_configs(MetadataImage(), {"errors.deadletterqueue.topic.name": "x"}, anything)
    with pytest.raises(InvalidConfig):
        check_group_configs(MetadataImage(), {"errors.deadletterqueue.topic.name": "__x"}, anything)
