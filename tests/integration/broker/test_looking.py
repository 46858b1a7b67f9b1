"""Looking does not make: lists of a broker that was not used yet load no coordinator."""

from __future__ import annotations

from ottla.sync import Admin
from ottla.testing.embedded import EmbeddedBroker


def test_lists_of_groups_and_transactions_load_nothing() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        services = broker._node.services  # type: ignore[union-attr]  # it runs
        with Admin(broker.bootstrap) as admin:
            assert admin.list_groups() == []
            assert admin.list_transactions() == []
            assert services.groups.made is None
            assert services.transactions.made is None
            admin.alter_group_offsets("billing", {("orders", 0): 0})
            assert [one.id for one in admin.list_groups()] == ["billing"]
