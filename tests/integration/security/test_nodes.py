"""Nodes log in to each other, and the tier to its own broker (case 45)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running.node import Node
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.errors import ConfigError
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.write_txn_markers import WriteTxnMarkersRequest
from tests.support.doors import bootstrap, guarded_broker, run_in

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


async def test_a_mechanism_without_passwords_cannot_be_the_nodes(
    tls_files: TlsFiles, tmp_path: Path
) -> None:
    config = config_of(
        tls_files, 1, "SASL_SSL", **{"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}
    )
    node = await started(config, tmp_path)
    try:
        assert node.services.door is not None
        with pytest.raises(ConfigError, match=r"sasl\.mechanism\.inter\.broker\.protocol"):
            await node.services.door.node_security()
    finally:
        await node.stop()


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
