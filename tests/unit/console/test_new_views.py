"""Views of letters, tables, schemas and rights; rules A9 and A14."""

from __future__ import annotations

from ottla.client.admin.types import Acl, QuotaDescription, UserDescription
from ottla.client.cluster.view import TopicPartition
from ottla.console.attention import hourly
from ottla.console.missing import Missing
from ottla.console.snapshot import Kind
from ottla.console.views import schemas, security, tables
from ottla.console.views.table import Query, Table
from ottla.schemas.model import Kind as SchemaKind
from ottla.schemas.model import Reference, Schema
from ottla.schemas.registry_client import RegisteredSchema
from ottla.tables.pointer import Pointer
from tests.support.console_source import FakeSource

HOUR_MS = 3_600_000


def shop() -> FakeSource:
    source = FakeSource()
    source.topic("orders", 2, end=500)
    source.topic("dlq.orders")
    source.group("warehouse", "share")
    source.letter_topics["warehouse"] = "dlq.orders"
    position = {0: 100, 1: 500}
    source.pointers["orders"] = Pointer(
        "orders", "id", "ottla.orders", "s3://m", "iceberg", 7, position
    )
    return source


async def test_case_74_a_table_that_lags_is_shown_and_needs_attention() -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.snapshot.refresh(Kind.TABLES, Kind.LETTERS)
    await cluster.tick()
    page = tables.page(cluster.look(), cluster.attention())
    assert isinstance(page.tables, Table)
    [row] = page.tables.rows
    assert (row.name, row.lag_records, row.partitions, row.has_topic) == (
        "ottla.orders",
        400,
        2,
        True,
    )
    assert not [one for one in cluster.attention().findings if one.word == "TABLE"]
    for _ in range(70):
        source.clock.advance(10_000)
        await cluster.tick()
    [found] = [one for one in cluster.attention().findings if one.word == "TABLE"]
    assert "400 records of orders wait" in found.text
    assert found.page == ("tables", "orders")
    one = tables.table_page(cluster.look(), cluster.attention(), "orders")
    assert [(each.partition, each.position, each.end, each.lag) for each in one.positions] == [
        (0, 100, 500, 400),
        (1, 500, 500, 0),
    ]
    del source.topics_by_name["orders"]
    source.clock.advance(20_000)
    await cluster.tick()
    [found] = [one for one in cluster.attention().findings if one.word == "TABLE"]
    assert "its topic orders is gone" in found.text
    none = tables.table_page(cluster.look(), cluster.attention(), "payments")
    assert none.row is None


async def test_a9_a_flood_of_letters_and_a_missing_topic_need_attention() -> None:
    source = shop()
    cluster = source.cluster_of()
    place = TopicPartition("dlq.orders", 0)

    async def hours(count: float, letters: int) -> None:
        for _ in range(int(count * 360)):
            source.clock.advance(10_000)
            source.logs[place] = (0, source.logs[place][1] + letters)
            await cluster.tick()

    await cluster.snapshot.refresh(Kind.LETTERS)
    await cluster.tick()
    await hours(0.1, 0)
    assert hourly(cluster.look(), "dlq.orders")[0] == 0
    assert not [one for one in cluster.attention().findings if one.word == "LETTERS"]
    await hours(0.1, 2)
    [found] = [one for one in cluster.attention().findings if one.word == "LETTERS"]
    assert "usual: not known yet" in found.text
    assert found.page == ("queues", "warehouse", "letters")
    await hours(3, 2)
    new, usual = hourly(cluster.look(), "dlq.orders")
    assert new is not None
    assert usual is not None
    assert 650 < new < 790  # 720, and what the borders of slots add
    assert not [one for one in cluster.attention().findings if one.word == "LETTERS"]
    await hours(1, 20)
    [found] = [one for one in cluster.attention().findings if one.word == "LETTERS"]
    assert "usual" in found.text
    source.letter_topics["warehouse"] = "dlq.gone"
    source.clock.advance(61_000)
    await cluster.snapshot.refresh(Kind.LETTERS)
    [found] = [one for one in cluster.attention().findings if one.word == "LETTERS"]
    assert "dlq.gone, which is missing" in found.text


def registered(version: int, text: str, *references: Reference) -> RegisteredSchema:
    return RegisteredSchema("orders-value", version, version + 10, Schema(
        SchemaKind.AVRO, text, references
    ))  # fmt: skip


async def test_case_74_versions_of_a_schema_are_compared() -> None:
    cluster = shop().cluster_of()
    await cluster.tick()
    look, attention = cluster.look(), cluster.attention()
    versions = [
        registered(2, '{"a":1,"b":2}', Reference("x", "other", 3)),
        registered(1, '{"a":1}'),
    ]
    page = schemas.subject_page(look, attention, "orders-value", versions, "BACKWARD")
    assert (page.shown, page.before, page.topic) == (2, 1, "orders")
    assert [(one.sign, one.text) for one in page.difference] == [
        (" ", "{"),
        ("-", '  "a": 1'),
        ("+", '  "a": 1,'),
        ("+", '  "b": 2'),
        (" ", "}"),
    ]
    assert isinstance(page.versions, tuple)
    assert [(one.version, one.id, one.references) for one in page.versions] == [
        (2, 12, ("x: other 3",)),
        (1, 11, ()),
    ]
    first = schemas.subject_page(look, attention, "orders-value", versions, "BACKWARD", 1)
    assert (first.shown, first.before, first.difference) == (1, None, ())
    same = [versions[0], registered(3, '{"a":1,"b":2}')]
    assert schemas.subject_page(look, attention, "s", same, "NONE").difference == ()
    away = Missing("no schema registry answers")
    assert schemas.subject_page(look, attention, "s", away, away).versions == away
    listed = schemas.page(
        look,
        attention,
        "http://r",
        ["orders-value", "orders-key", "com.Order"],
        "FULL",
        "READWRITE",
    )
    assert isinstance(listed.subjects, Table)
    assert [(one.name, one.topic) for one in listed.subjects.rows] == [
        ("com.Order", ""),
        ("orders-key", "orders"),
        ("orders-value", "orders"),
    ]


async def test_case_75_what_may_not_be_seen_says_what_it_needs() -> None:
    cluster = shop().cluster_of()
    await cluster.tick()
    look, attention = cluster.look(), cluster.attention()
    needs = Missing("not allowed: needs Describe on the cluster")
    page = security.page(look, attention, needs, needs, needs)
    assert (page.users, page.acls, page.quotas) == (needs, needs, needs)
    acls = [
        Acl("topic", "orders", "read", "User:bob", pattern="prefixed"),
        Acl("group", "*", "all", "User:amy", "deny"),
    ]
    users = [UserDescription("bob", {"SCRAM-SHA-512": 4096})]
    quotas = [QuotaDescription({"user": "bob", "client-id": None}, {"producer_byte_rate": 1e6})]
    page = security.page(look, attention, users, acls, quotas, Query(contains="BOB"))
    assert isinstance(page.acls, Table)
    assert [(one.principal, one.resource) for one in page.acls.rows] == [("User:bob", "orders*")]
    assert page.users == (security.UserRow("bob", ("SCRAM-SHA-512",)),)
    assert page.quotas == (
        security.QuotaRow(
            "user bob, client-id (default)",
            "producer_byte_rate",
            1e6,
            (("user", "bob"), ("client-id", None)),
        ),
    )
