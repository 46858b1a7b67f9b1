"""The own clients over SASL_SSL, against Ottla and against Apache Kafka (cases 100 and 102)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

import ottla
from ottla import Acl, Security
from ottla.testing.secured import certificates
from tests.support.jvm import why_no_jvm
from tests.support.names import fresh
from tests.support.secured_kafka import ADMIN, SecuredKafka
from tests.support.shared_kafka import CONFIG

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

PASSWORD = "wonder-4711"


@dataclass(frozen=True)
class Cluster:
    """Where it listens; its super user is `admin`."""

    bootstrap: str
    is_apache: bool = False

    async def shows(self, ask: Callable[[], Awaitable[object]], expected: object) -> None:
        """A change is shown when it is answered; Apache Kafka's brokers hear of it later."""
        found = await ask()
        patience = asyncio.get_running_loop().time() + 30 if self.is_apache else 0.0
        while found != expected and asyncio.get_running_loop().time() < patience:
            await asyncio.sleep(0.05)
            found = await ask()
        assert found == expected

    def security(self, user: str = ADMIN, password: str = PASSWORD) -> Security:
        return Security("SASL_SSL", "SCRAM-SHA-512", user, password, ssl_ca=certificates().ca)

    def admin(self, user: str = ADMIN) -> ottla.Admin:
        return ottla.Admin(self.bootstrap, security=self.security(user))


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.jvm)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "ottla":
        secured = ottla.Secured(users={ADMIN: PASSWORD}, super_users=[ADMIN])
        with ottla.EmbeddedBroker(security=secured, config=CONFIG) as broker:
            yield Cluster(broker.bootstrap)
        return
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with SecuredKafka() as kafka:
        kafka.create_user(ADMIN, PASSWORD)
        yield Cluster(kafka.secure_bootstrap, is_apache=True)


async def topic_and_user(cluster: Cluster, *rights: str) -> tuple[str, str]:
    """A fresh topic and a fresh user with these rights; {} is the topic's name."""
    topic, user = fresh("topic"), fresh("user")
    async with cluster.admin() as admin:
        await admin.create_topic(topic)
        await admin.create_user(user, PASSWORD, iterations=4096)
        acls = [acl for right in rights for acl in Acl.parse(f"allow {user} {right.format(topic)}")]
        await admin.create_acls(acls)
    return topic, user


async def test_producer_reader_and_consumer_case_100(cluster: Cluster) -> None:
    topic, user = await topic_and_user(
        cluster, "read,write,describe topic:{}", "read group:group-of-{}"
    )
    by = cluster.security(user)
    async with ottla.Producer(cluster.bootstrap, security=by) as producer:
        await asyncio.gather(*(producer.send(topic, b"%d" % n) for n in range(100)))
    expected = [b"%d" % n for n in range(100)]
    async with ottla.Reader(cluster.bootstrap, topic, stop="latest", security=by) as reader:
        assert [one.value for one in await reader.read_many(200)] == expected
    async with ottla.Consumer(
        cluster.bootstrap,
        group=f"group-of-{topic}",
        topics=[topic],
        auto_offset_reset="earliest",
        security=by,
    ) as consumer:
        found: list[bytes | None] = []
        while len(found) < 100:
            found += [one.value for one in await consumer.poll(5)]
        assert found == expected
        await consumer.commit()


async def test_share_consumer_case_100(cluster: Cluster) -> None:
    """`auto_offset_reset` is a setting of the group, which it reads and sets."""
    topic, user = await topic_and_user(
        cluster,
        "read,write,describe topic:{}",
        "read,describe_configs,alter_configs group:group-of-{}",
    )
    by = cluster.security(user)
    async with ottla.Producer(cluster.bootstrap, security=by) as producer:
        await producer.send(topic, b"one")
    async with ottla.ShareConsumer(
        cluster.bootstrap,
        group=f"group-of-{topic}",
        topics=[topic],
        auto_offset_reset="earliest",
        security=by,
    ) as consumer:
        found: list[bytes | None] = []
        while not found:
            found += [one.value for one in await consumer.poll(5)]
        assert found == [b"one"]


async def test_transactions_case_100(cluster: Cluster) -> None:
    topic, user = await topic_and_user(
        cluster, "read,write,describe topic:{}", "write,describe txn:txn-of-{}"
    )
    by = cluster.security(user)
    async with ottla.Producer(
        cluster.bootstrap, transactional_id=f"txn-of-{topic}", security=by
    ) as producer:
        async with producer.transaction():
            await producer.send(topic, b"kept")
        dropped = producer.transaction()
        await dropped.__aenter__()
        await producer.send(topic, b"dropped")
        await dropped.__aexit__(RuntimeError, RuntimeError(), None)
    async with ottla.Reader(
        cluster.bootstrap,
        topic,
        stop="latest",
        isolation_level="read_committed",
        security=by,
    ) as reader:
        assert [one.value for one in await reader.read_many(5)] == [b"kept"]


def test_blocking_twins_case_100(cluster: Cluster) -> None:
    by = cluster.security()
    topic = fresh("topic")
    with ottla.sync.Admin(cluster.bootstrap, security=by) as admin:
        admin.create_topic(topic)
        assert topic in {one.name for one in admin.list_topics()}
    with ottla.sync.Producer(cluster.bootstrap, security=by) as producer:
        producer.send(topic, b"one")
    with ottla.sync.Reader(cluster.bootstrap, topic, stop="latest", security=by) as reader:
        assert [one.value for one in reader.read_many(5)] == [b"one"]
    with ottla.sync.ShareConsumer(
        cluster.bootstrap,
        group=fresh("group"),
        topics=[topic],
        auto_offset_reset="earliest",
        security=by,
    ) as consumer:
        found: list[bytes | None] = []
        while not found:
            found += [one.value for one in consumer.poll(5)]


async def test_users_case_43(cluster: Cluster) -> None:
    name = fresh("user")
    async with cluster.admin() as admin:
        assert await admin.create_user(
            name, "the old one", mechanism="SCRAM-SHA-256", iterations=4096
        )
        [found] = await admin.describe_users([name])
        assert found == ottla.UserDescription(name, {"SCRAM-SHA-256": 4096})
        assert not await admin.create_user(name, PASSWORD, iterations=4097)
        [found] = await admin.describe_users([name])
        assert found.mechanisms == {"SCRAM-SHA-256": 4097, "SCRAM-SHA-512": 4097}
        # Once more, with both.
        assert not await admin.create_user(name, PASSWORD, iterations=4096)
        [found] = await admin.describe_users([name])
        assert found.mechanisms == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
        assert name in {one.name for one in await admin.describe_users()}
        async with cluster.admin(name) as other:
            await other.connect()
        await admin.delete_user(name)
        with pytest.raises(ottla.errors.KafkaError, match="RESOURCE_NOT_FOUND"):
            await admin.describe_users([name])
        with pytest.raises(ottla.errors.KafkaError, match="RESOURCE_NOT_FOUND"):
            await admin.delete_user(name, mechanism="SCRAM-SHA-256")
    async with cluster.admin(name) as other:
        with pytest.raises(ottla.errors.AuthenticationFailed, match=f"cannot log in as '{name}'"):
            await other.connect()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_after_a_change_the_old_password_works_with_no_mechanism(
    cluster: Cluster, mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
) -> None:
    """Also if the user changes its own, which closes its connections."""
    name = fresh("user")
    both: list[Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]] = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    async with cluster.admin() as admin:
        for one in both:
            await admin.create_user(name, PASSWORD, mechanism=one, iterations=4096)
        await admin.create_acls(Acl.parse(f"allow {name} alter cluster"))
    async with cluster.admin(name) as own:
        await own.create_user(name, "the new one", mechanism=mechanism, iterations=4096)
    for one in both:
        old = replace(cluster.security(name), sasl_mechanism=one)
        async with ottla.Admin(cluster.bootstrap, security=old) as client:
            with pytest.raises(ottla.errors.AuthenticationFailed):
                await client.connect()
        new = replace(old, sasl_password="the new one")
        async with ottla.Admin(cluster.bootstrap, security=new) as client:
            await client.connect()


async def test_acls_and_quotas(cluster: Cluster) -> None:
    topic, user = await topic_and_user(cluster, "read topic:{}", "write topic:{}*")
    principal = f"User:{user}"
    literal = Acl("topic", topic, "read", principal)
    prefixed = Acl("topic", topic, "write", principal, pattern="prefixed")
    async with cluster.admin() as admin:
        await cluster.shows(lambda: admin.describe_acls(principal=principal), [literal, prefixed])
        assert await admin.describe_acls(
            resource="topic", name=f"{topic}-more", covering=True, principal=principal
        ) == [prefixed]
        assert await admin.delete_acls(principal=principal, operation="write") == [prefixed]
        await cluster.shows(lambda: admin.describe_acls(principal=principal), [literal])
        await admin.create_acls([literal])
        await admin.alter_quotas({"user": user}, {"producer_byte_rate": 1_000_000})
        quota = ottla.QuotaDescription({"user": user}, {"producer_byte_rate": 1_000_000.0})
        await cluster.shows(lambda: admin.describe_quotas({"user": user}), [quota])
        await admin.alter_quotas({"user": user}, {"producer_byte_rate": None})
        await cluster.shows(lambda: admin.describe_quotas({"user": user}), [])


async def test_a_wrong_password_is_told_at_once_case_102(cluster: Cluster) -> None:
    wrong = cluster.security(ADMIN, "canary")
    began = asyncio.get_running_loop().time()
    producer = ottla.Producer(cluster.bootstrap, security=wrong)
    reader = ottla.Reader(cluster.bootstrap, "t", security=wrong)
    sharer = ottla.ShareConsumer(cluster.bootstrap, group="g", topics=["t"], security=wrong)
    consumer = ottla.Consumer(cluster.bootstrap, group="g", topics=["t"], security=wrong)

    async def use(client: Any, call: Callable[[], Awaitable[object]]) -> None:
        async with client:
            await call()

    for client, call in (
        (producer, lambda: producer.send("t", b"")),
        (reader, lambda: reader.read_many(1)),
        (sharer, lambda: sharer.poll(10)),
        (consumer, lambda: consumer.poll(10)),
    ):
        with pytest.raises(
            ottla.errors.AuthenticationFailed, match="as 'admin' with SCRAM-SHA-512"
        ) as failure:
            await use(client, call)
        assert "canary" not in str(failure.value)
    # Far from the minute that a client waits for brokers that are down.
    assert asyncio.get_running_loop().time() - began < 30


async def test_refusals_name_resource_and_operation_case_102(cluster: Cluster) -> None:
    topic, user = await topic_and_user(cluster, "describe topic:{}", "write topic:other-{}")
    by = cluster.security(user)
    async with ottla.Producer(cluster.bootstrap, security=by) as producer:
        with pytest.raises(ottla.errors.TopicAuthorizationFailed, match=topic):
            await producer.send(topic, b"")
    async with ottla.Reader(cluster.bootstrap, topic, security=by) as reader:
        with pytest.raises(ottla.errors.TopicAuthorizationFailed, match=topic):
            await reader.read_many(1)
    with pytest.raises(ottla.errors.GroupAuthorizationFailed, match="not-mine"):
        async with ottla.Consumer(
            cluster.bootstrap, group="not-mine", topics=[topic], security=by
        ) as consumer:
            await consumer.poll(10)
    with pytest.raises(ottla.errors.GroupAuthorizationFailed, match="not-mine"):
        async with ottla.ShareConsumer(
            cluster.bootstrap, group="not-mine", topics=[topic], security=by
        ) as sharer:
            await sharer.poll(10)
    async with cluster.admin(user) as admin:
        with pytest.raises(
            ottla.errors.AuthorizationFailed, match=r"create topic 'another'.*ask for an ACL"
        ):
            await admin.create_topic("another")
        with pytest.raises(ottla.errors.ClusterAuthorizationFailed, match="describe ACLs"):
            await admin.describe_acls()
