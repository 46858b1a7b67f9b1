"""Quotas in tests: set on a broker of this process, without a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.changes.security import SetClientQuotas
from ottla.metadata.security.quotas import EntityPart, checked_entity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.testing.embedded import EmbeddedBroker


def set_quotas(
    broker: EmbeddedBroker, entity: Mapping[str, str | None], **values: float | None
) -> None:
    """Quotas of an entity by their keys; None removes one."""
    parts = checked_entity([EntityPart(kind, name) for kind, name in entity.items()])
    broker._call(lambda node: node.metadata.change(SetClientQuotas(parts, values)))
