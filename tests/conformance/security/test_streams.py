"""Streams over SASL_SSL: consumers of all modes, producers, transactions, relay (case 105)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ottla
from ottla import streams
from ottla.security.certificates import Authority, write_authority
from ottla.streams.errors import ConnectError
from ottla.streams.relay import relay_streams
from ottla.streams.types import KafkaOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(security=ottla.Secured(users={"alice": "a"})) as broker:
        yield broker


async def send(broker: ottla.EmbeddedBroker, topic: str, count: int = 3) -> None:
    broker.create_topic(topic)
    url = f"kafka://{broker.bootstrap}/{topic}"
    async with (
        ottla.connect(url, security=broker.security("alice")) as streamer,
        streamer.producer() as producer,
    ):
        for number in range(count):
            await (await producer.send(f"{number}"))


@pytest.mark.parametrize("mode", ["real_time", "resumable", "load_balanced", "shared"])
async def test_consumers_case_105(broker: ottla.EmbeddedBroker, mode: str) -> None:
    topic = f"stream-{mode.replace('_', '-')}"
    await send(broker, topic)
    options = streams.ConsumerOptions(
        mode=streams.Mode(mode),
        group=None if mode == "real_time" else f"group-{mode}",
        app="app" if mode == "resumable" else None,
        reset=streams.Reset.EARLIEST,
        auto_commit=streams.AutoCommit.DISABLED
        if mode == "real_time"
        else streams.AutoCommit.DELAYED,
    )
    url = f"kafka://{broker.bootstrap}/{topic}"
    kafka = KafkaOptions(security=broker.security("alice"))
    async with (
        ottla.connect(url, kafka) as streamer,
        streamer.consumer(options=options) as consumer,
    ):
        found = []
        async for message in consumer:
            found.append(message.text())
            if len(found) == 3:
                break
    assert sorted(found) == ["0", "1", "2"]


async def test_relay_case_105(broker: ottla.EmbeddedBroker, tmp_path: Path) -> None:
    await send(broker, "relayed")
    broker.create_topic("relayed-copy")
    config = tmp_path / "alice.properties"
    config.write_text(broker.properties_file("alice").read_text())
    await relay_streams(
        f"kafka://{broker.bootstrap}/relayed?config={config}",
        f"kafka://{broker.bootstrap}/relayed-copy",
        until_end=True,
        security=broker.security("alice"),
    )
    async with ottla.Reader(
        broker.bootstrap, "relayed-copy", stop="latest", security=broker.security("alice")
    ) as reader:
        assert [one.value for one in await reader.read_many(10)] == [b"0", b"1", b"2"]


async def test_a_refused_login_is_an_error_of_streams(broker: ottla.EmbeddedBroker) -> None:
    wrong = ottla.Security(
        "SASL_SSL", "SCRAM-SHA-512", "alice", "canary", ssl_ca=str(broker.ca_file)
    )
    options = streams.ConnectOptions(timeout=60, kafka=KafkaOptions(security=wrong))
    with pytest.raises(ConnectError, match="cannot log in as 'alice'") as failure:
        async with ottla.connect(f"kafka://{broker.bootstrap}/refused", options):
            pass
    assert "canary" not in str(failure.value)


async def test_a_foreign_authority_is_an_error_of_streams(
    broker: ottla.EmbeddedBroker, tmp_path: Path
) -> None:
    """Fault: librdkafka tried again until the time was up, and the reason was lost."""
    write_authority(tmp_path, Authority.make("foreign"))
    kafka = KafkaOptions(security=ottla.Security("SSL", ssl_ca=tmp_path / "ca.pem"))
    with pytest.raises(ConnectError, match="certificate verify failed"):
        async with ottla.connect(f"kafka://{broker.bootstrap}/refused", kafka):
            pass
