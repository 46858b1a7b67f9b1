"""The certificate of a broker, as the console's own connection sees it."""

from __future__ import annotations

import pytest

from ottla.client.cluster.cluster import Client
from ottla.clock import SYSTEM
from ottla.console.clusters import AdminSource
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.secured import Secured

pytestmark = pytest.mark.long


async def test_a15_the_end_of_a_brokers_certificate_is_known() -> None:
    with EmbeddedBroker(security=Secured(users={"bob": "hunter22hunter22"})) as broker:
        async with Client(broker.bootstrap, security=broker.security("bob")) as client:
            source = AdminSource(client)
            await source.cluster()
            [until] = (await source.certificates()).values()
    assert until > SYSTEM.wall()


async def test_a_broker_without_tls_has_none() -> None:
    with EmbeddedBroker() as broker:
        async with Client(broker.bootstrap) as client:
            assert await AdminSource(client).certificates() == {}
