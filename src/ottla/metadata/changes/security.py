"""Changes of ACLs, users and quotas.

What is valid is not checked here, as with configuration: the rules change between versions, but
stored changes must always give the same image. Check with `ottla.metadata.security` first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.metadata.changes.mappings import with_entry, without_entry
from ottla.metadata.security.quotas import ClientQuota, EntityPart, entity_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.image import MetadataImage
    from ottla.metadata.security.acls import Acl
    from ottla.metadata.security.users import ScramCredential


@dataclass(frozen=True, slots=True)
class AddAcls:
    """ACLs that exist already stay as they are."""

    acls: tuple[Acl, ...]

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        return replace(image, acls=image.acls | set(self.acls))


@dataclass(frozen=True, slots=True)
class RemoveAcls:
    """ACLs that do not exist are passed over."""

    acls: tuple[Acl, ...]

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        return replace(image, acls=image.acls - set(self.acls))


@dataclass(frozen=True, slots=True)
class SetScramCredential:
    user: str
    mechanism: str
    credential: ScramCredential

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        mechanisms = with_entry(image.scram.get(self.user, {}), self.mechanism, self.credential)
        return replace(image, scram=with_entry(image.scram, self.user, mechanisms))


@dataclass(frozen=True, slots=True)
class RemoveScramCredential:
    """The user goes with its last credential; one that does not exist is passed over."""

    user: str
    mechanism: str

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        left = without_entry(image.scram.get(self.user, {}), self.mechanism)
        if left:
            return replace(image, scram=with_entry(image.scram, self.user, left))
        return replace(image, scram=without_entry(image.scram, self.user))


@dataclass(frozen=True, slots=True)
class SetClientQuotas:
    """Sets quotas of one entity by their keys; None removes one."""

    entity: tuple[EntityPart, ...]
    values: Mapping[str, float | None]

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        key = entity_key(self.entity)
        before = image.client_quotas.get(key)
        merged = {
            name: value
            for name, value in {**(before.values if before else {}), **self.values}.items()
            if value is not None
        }
        quotas = image.client_quotas
        updated = (
            with_entry(quotas, key, ClientQuota(self.entity, merged))
            if merged
            else without_entry(quotas, key)
        )
        return replace(image, client_quotas=updated)


SecurityChange = AddAcls | RemoveAcls | SetScramCredential | RemoveScramCredential | SetClientQuotas
