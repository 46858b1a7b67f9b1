"""`apply`, the only way an image changes, and the union of all changes.

`apply` is pure: the same changes folded over the same image give the same image on every node and
at every start. A change that does not fit is refused with a `ChangeRefused` and changes nothing.
Random or timed values (topic ids, the node of a partition) are chosen before and are part of the
change.

Changes are dataclasses: their fields are the schema of what a store keeps (`ottla.metadata.codec`),
and `applied_to` is the rule. It is given the old image with the version counted up already.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ottla.metadata.changes.configs import SetConfigs, SetFeature
from ottla.metadata.changes.nodes import (
    AllocateProducerIds,
    RegisterBroker,
    SetBrokerFenced,
    SetClusterId,
    UnregisterBroker,
)
from ottla.metadata.changes.topics import AddPartitions, CreateTopic, DeleteTopic, SetLeaders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.metadata.changes.security import SecurityChange
    from ottla.metadata.image import MetadataImage

PlainChange = (
    SetClusterId
    | RegisterBroker
    | SetBrokerFenced
    | UnregisterBroker
    | CreateTopic
    | DeleteTopic
    | AddPartitions
    | SetLeaders
    | SetConfigs
    | SetFeature
    | AllocateProducerIds
)
"""All but those of users, ACLs and quotas, which are not loaded where there are none."""
Change: TypeAlias = "PlainChange | SecurityChange"

Decision: TypeAlias = "Callable[[MetadataImage], Sequence[Change]]"
"""Decides from the newest image of all nodes which changes to make; it may be none.

It runs in the metadata thread, inside the store's transaction: no other change can come between the
decision and its changes. It must be fast and pure. An exception goes to the caller, and nothing is
changed.
"""


def apply(image: MetadataImage, change: Change) -> MetadataImage:
    """The image one version on, or a `ChangeRefused`."""
    return change.applied_to(replace(image, version=image.version + 1))


def apply_all(image: MetadataImage, changes: Iterable[Change]) -> MetadataImage:
    for change in changes:
        image = apply(image, change)
    return image


def carry_out(
    image: MetadataImage, steps: Iterable[Change | Decision]
) -> tuple[list[Change], MetadataImage]:
    """The changes that the steps come to, one after another, and the image after them."""
    made: list[Change] = []
    for step in steps:
        changes = step(image) if callable(step) else (step,)
        image = apply_all(image, changes)
        made += changes
    return made, image
