"""Nodes log in to each other, and the tier to its own broker (case 45)."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.broker.running.node import Node
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.errors import ConfigError
from ottla.security.certificates import Authority
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.write_txn_markers import WriteTxnMarkersRequest
from tests.support.doors import bootstrap, guarded_broker, run_in
from tests.support.tiered_broker import TIERED, eventually, settings, stored

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.doors import TlsFiles

NAMED = ApiVersionsRequest("tests", "1.0")


def config_of(tls_files: TlsFiles, node_id: int, protocol: str, **more: str) -> dict[str, str]:
    return {
        **tls_files.config(),
        "node.id": str(node_id),
        "listeners": "CLIENTS://127.0.0.1:0,NODES://127.0.0.1:0",
        "listener.security.protocol.map": f"CLIENTS:{protocol},NODES:{protocol}",
        "inter.broker.listener.name": "NODES",
        "ssl.truststore.location": str(tls_files.ca),
        **more,
    }


async def started(config: dict[str, str], path: Path) -> Node:
    sets = [f"{key}={value}" for key, value in config.items()]
    return await Node.start(load_broker_config(sets=sets), path, siblings=True)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT", "SSL"])
async def test_case_45_two_nodes_talk_over_their_listener(
    tls_files: TlsFiles, tmp_path: Path, protocol: str
) -> None:
    more = {"listener.name.nodes.ssl.client.auth": "required"} if protocol == "SSL" else {}
    nodes = [
        await started(
            config_of(tls_files, number, protocol, **more),
            tmp_path,
        )
        for number in (1, 2)
    ]
    try:
        await nodes[0].metadata.poll()
        answer = await nodes[0].services.peers().ask(2, NAMED, 3)
        assert answer.error_code == 0
        (peer,) = (one.peer for one in nodes[1].dispatcher.connections)
        assert peer.listener == "NODES"
        assert peer.principal == ("User:CN=localhost" if protocol == "SSL" else "User:__node")
    finally:
        for node in nodes:
            await node.stop()


def test_the_tier_logs_in_to_its_own_broker(tls_files: TlsFiles, tmp_path: Path) -> None:
    config = {
        **tls_files.config(),
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.truststore.location": str(tls_files.ca),
        "remote.log.storage.system.enable": "true",
        "rsm.config.url": f"file://{tmp_path}/store",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    }
    with guarded_broker(config) as broker:
        assert bootstrap(broker, "SASL_SSL")

        def ready(node: Node) -> bool:
            tiering = node.services.tiering.made
            assert tiering is not None
            assert tiering.alarm is None, tiering.alarm
            return tiering.manager is not None

        deadline = time.monotonic() + 30
        while not run_in(broker, ready):
            assert time.monotonic() < deadline


async def test_nodes_that_would_refuse_each_other_do_not_start(
    tls_files: TlsFiles, tmp_path: Path
) -> None:
    """Fault: transactions waited for minutes, and the log blamed the catalogue of the tier."""
    config = config_of(tls_files, 1, "SASL_SSL")
    trust = tls_files.directory / "other.pem"
    trust.write_bytes(Authority.make().issued.chain)
    for wrong in ({}, {"ssl.truststore.location": str(trust)}):
        given = {key: value for key, value in config.items() if "truststore" not in key} | wrong
        with pytest.raises(
            ConfigError, match=r"nodes\.ssl\.truststore\.location: expected the CA of the listener"
        ):
            await started(given, tmp_path)


async def test_a_mechanism_without_passwords_cannot_be_the_nodes(
    tls_files: TlsFiles, tmp_path: Path
) -> None:
    config = config_of(
        tls_files, 1, "SASL_SSL", **{"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}
    )
    with pytest.raises(ConfigError, match=r"sasl\.mechanism\.inter\.broker\.protocol"):
        await started(config, tmp_path)


async def test_case_45_a_node_without_rights_does_not_start(tmp_path: Path) -> None:
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "authorizer.class.name=standard"]
    config = load_broker_config(sets=sets)
    with pytest.raises(ConfigError, match=r"super\.users: expected User:ANONYMOUS"):
        await Node.start(config, tmp_path, siblings=True)
    trusted = load_broker_config(sets=[*sets, "super.users=User:ANONYMOUS"])
    node = await Node.start(trusted, tmp_path, siblings=True)
    await node.stop()


async def test_case_45_a_node_is_known_by_its_certificate(
    tls_files: TlsFiles, tmp_path: Path
) -> None:
    """Where nodes show certificates, the own one must have the right to act for the cluster."""
    more = {"authorizer.class.name": "standard", "ssl.client.auth": "required"}
    config = config_of(tls_files, 1, "SSL", **more)
    with pytest.raises(ConfigError, match=r"super\.users: expected User:CN=localhost, as which"):
        await started(config, tmp_path)
    rules = "listener.name.nodes.ssl.principal.mapping.rules"
    with pytest.raises(ConfigError, match=r"mapping.rules: expected a rule for this node's own"):
        await started(config | {rules: "RULE:^CN=nobody$/x/"}, tmp_path)
    named = config | {rules: "RULE:^CN=([a-z]+)$/node-$1/", "super.users": "User:node-localhost"}
    node = await started(named, tmp_path)
    await node.stop()


async def test_case_45_two_nodes_with_an_authorizer(tls_files: TlsFiles, tmp_path: Path) -> None:
    more = {"authorizer.class.name": "standard"}
    nodes = [
        await started(
            config_of(tls_files, number, "SASL_SSL", **more),
            tmp_path,
        )
        for number in (1, 2)
    ]
    try:
        await nodes[0].metadata.poll()
        answer = await nodes[0].services.peers().ask(2, WriteTxnMarkersRequest(), 1)
        assert list(answer.markers) == []
    finally:
        for node in nodes:
            await node.stop()


@pytest.mark.long
def test_case_45_shares_transactions_and_the_tier_work_among_secured_nodes(tmp_path: Path) -> None:
    """Coordinators, leaders and catalogue are on different nodes, which log in to each other."""
    secured = ottla.Secured(users={"alice": "a"}, super_users=["alice"])
    store = tmp_path / "store"
    config = settings(store)
    del config["ottla.metrics.listener"]
    with ottla.EmbeddedBroker(nodes=3, security=secured, config=config) as broker:
        alice = broker.security("alice")
        assert alice.security_protocol == "SASL_SSL"
        place = broker.bootstrap
        broker.create_topic("orders", partitions=3, configs=TIERED)
        positions = [ottla.TopicPartition("orders", index) for index in range(3)]
        with ottla.sync.Admin(place, security=alice) as admin:
            (topic,) = admin.describe_topics(["orders"])
            assert {one.leader for one in topic.partitions} == {1, 2, 3}
        for number in range(3):  # their coordinators are on different nodes, too
            with ottla.sync.Producer(
                place, transactional_id=f"worker-{number}", security=alice
            ) as producer:
                for kept in (True, False):
                    with suppress(ZeroDivisionError), producer.transaction() as transaction:
                        for one in positions:
                            text = f"{number} {one.partition} {kept}".encode()
                            producer.send("orders", text, partition=one.partition)
                        transaction.send_offsets(f"group-{number}", dict.fromkeys(positions, 1))
                        if not kept:
                            raise ZeroDivisionError
        committed = {f"{number} {index} True" for number in range(3) for index in range(3)}
        with ottla.sync.Consumer(
            place,
            group="readers",
            topics=["orders"],
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            security=alice,
        ) as consumer:
            read: set[str] = set()
            while read != committed:
                read |= {str(record.value, "utf-8") for record in consumer.poll(10) if record.value}
                assert read <= committed
        with ottla.sync.ShareConsumer(
            place, group="crew", topics=["orders"], auto_offset_reset="earliest", security=alice
        ) as sharer:
            shared: set[bytes | None] = set()
            while len(shared) < 18:
                shared |= {record.value for record in sharer.poll(10)}
        with ottla.sync.Producer(place, security=alice) as producer:
            for one in positions:
                for _ in range(40):
                    value = b"x" * 100_000
                    producer.send("orders", value, partition=one.partition)
        eventually(
            lambda: len({path.parent for path in stored(store, ".log")}) >= 3,
            "segments of each node are in the store",
        )
