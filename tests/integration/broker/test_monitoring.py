"""`/metrics`, `/healthz` and `/readyz` of a broker."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from ottla.broker.access.permissions import REGISTRY_ROUTES, ROUTES
from ottla.broker.running import metrics as broker_metrics
from ottla.log.os_storage import OsStorage
from ottla.security.certificates import Authority
from ottla.sync import Admin, Producer
from ottla.testing.embedded import EmbeddedBroker
from tests.support.raw_client import RawClient, batch, values_of

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.broker.running.node import Node

ANY_PORT = {"ottla.metrics.listener": "http://127.0.0.1:0"}


def url(broker: EmbeddedBroker, path: str, scheme: str = "http") -> str:
    node = broker._node
    assert node is not None
    assert node.monitoring is not None
    host, port = node.monitoring.address
    return f"{scheme}://{host}:{port}/{path}"


def get(broker: EmbeddedBroker, path: str, **headers: str) -> tuple[int, str]:
    asked = urllib.request.Request(url(broker, path), headers=headers)
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def key_store(directory: Path) -> tuple[Path, Authority]:
    authority = Authority.make()
    store = directory / "server.pem"
    store.write_bytes(authority.server(["127.0.0.1"]).store)
    store.chmod(0o600)
    return store, authority


def write(broker: EmbeddedBroker, topic: str, partition: int = 0) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"x", partition=partition)


def test_case_96_metrics_ask_for_the_token_and_health_does_not(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("canary-7261\n")
    with EmbeddedBroker(config=ANY_PORT | {"ottla.metrics.token.file": str(token)}) as broker:
        for route in ROUTES.keys() - REGISTRY_ROUTES.keys():
            needs = ROUTES[route][0]
            status = get(broker, route.removeprefix("GET /"))[0]
            assert status == (200 if needs.startswith("nothing") else 401), route
        assert get(broker, "metrics", Authorization="Bearer canary")[0] == 401
        status, text = get(broker, "metrics", Authorization="Bearer canary-7261")
        assert status == 200
        assert "ottla_topics" in text
        assert "canary" not in text


def test_metrics_count_as_request_time_and_health_does_not() -> None:
    """A scrape takes milliseconds of the loop, and a hundred-thousandth of it is allowed."""
    with EmbeddedBroker(config=ANY_PORT) as broker, Admin(broker.bootstrap) as admin:
        admin.alter_quotas({"user": None}, {"request_percentage": 0.001})
        assert get(broker, "metrics")[0] == 200
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(url(broker, "metrics"))
        assert raised.value.code == 429
        assert raised.value.headers["Retry-After"] == "1"
        raised.value.close()
        assert get(broker, "healthz")[0] == get(broker, "readyz")[0] == 200


def test_a_broker_whose_log_is_offline_is_not_ready_and_names_no_topic() -> None:
    with EmbeddedBroker(config=ANY_PORT) as broker:
        broker.create_topic("secret-plans")
        write(broker, "secret-plans")
        node = broker._node
        assert node is not None
        (hosted,) = node.partitions
        hosted.log._failure = OSError("on purpose")
        status, text = get(broker, "readyz")
        assert status == 503
        assert json.loads(text) == {
            "ready": False,
            "reasons": ["1 logs are offline after a disk error"],
        }
        hosted.log._failure = None
        assert get(broker, "readyz")[0] == 200


def test_very_many_partitions_are_summed_up_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_metrics, "MAX_SERIES", 10)
    with EmbeddedBroker(config=ANY_PORT) as broker:
        broker.create_topic("few", partitions=3)
        for partition in range(3):
            write(broker, "few", partition=partition)
        text = get(broker, "metrics")[1]
        assert "ottla_metrics_cut 0.0" in text
        assert 'ottla_log_end_offset{partition="2",topic="few"} 1.0' in text
        broker.create_topic("more", partitions=1)
        write(broker, "more")
        text = get(broker, "metrics")[1]
        assert "ottla_metrics_cut 1.0" in text
        assert 'ottla_log_end_offset{topic="few"} 3.0' in text
        assert 'ottla_log_online{topic="few"} 1.0' in text


def test_maps_and_cold_reads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = False
    monkeypatch.setattr(OsStorage, "is_cached", lambda *_: cached)
    config = ANY_PORT | {"ottla.tail.cache.bytes": "0"}
    with EmbeddedBroker(config=config) as broker, RawClient(broker.bootstrap) as client:
        client.topic("orders", create=True)
        assert client.produce("orders", batch(bytes(100_000))).error_code == 0
        before = get(broker, "metrics")[1]
        assert "ottla_cold_reads_total 0.0" in before
        assert values_of(client.fetch_one("orders", 0)) == [bytes(100_000)]
        after = get(broker, "metrics")[1]
        assert "ottla_cold_reads_total 1.0" in after
        cached = True
        assert values_of(client.fetch_one("orders", 0)) == [bytes(100_000)]
        after = get(broker, "metrics")[1]
        assert "ottla_cold_reads_total 1.0" in after
        # Of the process: another broker of it may have some, too.
        assert _number("ottla_log_maps", after) == _number("ottla_log_maps", before) + 1


def _number(name: str, text: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found
    return float(found[1])


def test_metrics_are_served_over_tls(tmp_path: Path) -> None:
    store, authority = key_store(tmp_path)
    config = {
        "ottla.metrics.listener": "https://127.0.0.1:0",
        "listener.name.metrics.ssl.keystore.location": str(store),
    }
    trust = ssl.create_default_context(cadata=authority.issued.chain.decode())
    with EmbeddedBroker(config=config) as broker:
        at = url(broker, "readyz", "https")
        with urllib.request.urlopen(at, context=trust) as answer:
            assert json.loads(answer.read()) == {"ready": True, "reasons": []}


def test_13_its_certificate_is_replaced_and_measured(tmp_path: Path) -> None:
    authority = Authority.make()
    store = tmp_path / "server.pem"
    store.touch(0o600)
    store.write_bytes(authority.server(["127.0.0.1"], days=30).store)
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(store),
        "ottla.metrics.listener": "https://127.0.0.1:0",
        "ottla.ssl.reload.interval.ms": "0",
    }
    trust = ssl.create_default_context(cadata=authority.issued.chain.decode())

    def measured(name: str) -> dict[str, float]:
        with urllib.request.urlopen(url(broker, "metrics", "https"), context=trust) as answer:
            lines = answer.read().decode().splitlines()
        return {
            key.removeprefix(name): float(value)
            for key, _, value in (line.rpartition(" ") for line in lines)
            if key.startswith(name)
        }

    def days() -> dict[str, int]:
        left = measured("ottla_tls_certificate_expiry_seconds")
        return {listener: round(seconds / 86_400) for listener, seconds in left.items()}

    async def reload(node: Node) -> None:
        assert node.services.certificates is not None
        await node.services.certificates.reload()

    with EmbeddedBroker(config=config) as broker:
        assert days() == {'{listener="SSL"}': 30, '{listener="METRICS"}': 30}
        store.write_bytes(authority.server(["127.0.0.1"], days=60).store)
        broker._call(reload)
        assert days() == {'{listener="SSL"}': 60, '{listener="METRICS"}': 60}
        store.write_text("broken")
        broker._call(reload)
        assert measured("ottla_tls_reload_failures_total") == {"": 2.0}


def test_a_stop_does_not_leave_a_look_at_certificates_behind(tmp_path: Path) -> None:
    """Fault: its threads ended before it."""
    config = {
        "ottla.metrics.listener": "https://127.0.0.1:0",
        "listener.name.metrics.ssl.keystore.location": str(key_store(tmp_path)[0]),
    }
    with EmbeddedBroker(config=config) as broker:
        node = broker._node
        assert node is not None
        assert node.services.certificates is not None
        began = threading.Event()
        ended: list[str] = []
        end_threads = node.workers.ended

        async def look() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("look")

        async def threads() -> None:
            ended.append("threads")
            await end_threads()

        node.services.certificates.reload = look  # type: ignore[method-assign]
        node.workers.ended = threads  # type: ignore[method-assign]
        assert broker._loop is not None
        broker._loop.call_soon_threadsafe(node.entrance.look_again)
        assert began.wait(20)
    assert ended == ["look", "threads"]
