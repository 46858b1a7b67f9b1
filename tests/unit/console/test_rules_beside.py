"""Rules A11 and A15: the tier and certificates."""

from __future__ import annotations

from ottla.client.cluster.connection import Address, Connection
from ottla.console.data import CATALOGUE_TOPIC
from ottla.console.missing import Missing
from ottla.console.snapshot import Kind
from ottla.console.tiering import TierAnswer
from ottla.tier.upkeep.tools import PartitionStatus
from tests.support.console_source import FakeSource

DAY = 86_400


def status(partition: int, since_ms: int | None) -> PartitionStatus:
    return PartitionStatus("orders", partition, 0, 5, 4, 9, 1, 100, 1, 0, since_ms)


async def test_a11_copies_that_do_not_end_and_a_catalogue_that_cannot_be_read() -> None:
    source = FakeSource()
    source.topic("orders", 3)
    cluster = source.cluster_of()
    await cluster.tick()

    def texts() -> list[str]:
        source.clock.advance(1_000)
        return [one.text for one in cluster.attention().findings if one.word == "TIER"]

    assert texts() == []
    assert "TIER" not in {one.word for one in cluster.attention().not_checked}, "there is no tier"
    source.topic(CATALOGUE_TOPIC)
    source.clock.advance(20_000)
    await cluster.tick()
    [reason] = [one.reason for one in cluster.attention().not_checked if one.word == "TIER"]
    assert "page Tier" in reason

    now = source.clock.wall_ms()
    rows = (status(0, now), status(1, now - 900_000), status(2, now - 700_000))
    cluster.snapshot.keep_tier(TierAnswer(rows, 0))
    [text] = texts()
    assert text == "topic orders: a copy to the tier began 15 min 01 s ago and has not ended"
    cluster.snapshot.keep_tier(TierAnswer((status(0, None),), 2))
    assert texts() == ["2 record(s) of the tier's metadata topic are no events"]
    cluster.snapshot.keep_tier(TierAnswer((), 0, "no broker\u202e answers"))
    assert texts() == ["the catalogue of the tier cannot be read: no broker⟨U+202E⟩ answers"]
    cluster.snapshot.keep_tier(Missing("not allowed: needs Read on topic"))
    assert texts() == []
    assert "TIER" in {one.word for one in cluster.attention().not_checked}


async def test_a15_a_certificate_that_ends_soon_needs_attention() -> None:
    source = FakeSource()
    cluster = source.cluster_of()
    now = source.clock.wall_ms() / 1000
    source.certificates_end = {1: now + 15 * DAY, 2: now + 13 * DAY, 3: now - 1}
    assert "CERT" in {one.word for one in cluster.attention().not_checked}
    await cluster.snapshot.refresh(Kind.CERTIFICATES)
    source.clock.advance(1_000)
    found = [one for one in cluster.attention().findings if one.word == "CERT"]
    assert [one.text for one in found] == [
        "node 2: its certificate ends in 12 d 23 h",
        "node 3: its certificate has ended",
    ]
    assert {one.page for one in found} == {("nodes",)}


async def test_a_connection_without_tls_has_no_certificate() -> None:
    assert Connection(Address("127.0.0.1", 1), "x").certificate_until is None
