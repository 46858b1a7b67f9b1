"""SchemaRegistry without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.schemas.registry_client import SchemaRegistry as AsyncSchemaRegistry
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.schemas.model import Reference, Schema
    from ottla.schemas.registry_client import Compatibility, Protected, RegisteredSchema


class SchemaRegistry(Twin[AsyncSchemaRegistry]):
    """`security` says who asks (user and password, token or certificate) and whom to trust.

    It is the value that other clients take. A `token` function is called in a thread, with an
    event loop of its own.
    """

    def __init__(
        self, url: str, *, security: Protected | None = None, timeout: float = 10.0
    ) -> None:
        super().__init__(lambda: AsyncSchemaRegistry(url, security=security, timeout=timeout))

    @property
    def url(self) -> str:
        return self._call(lambda: self._async.url)

    def register(
        self,
        subject: str,
        schema: str | Schema,
        *,
        kind: str = "avro",
        references: Sequence[Reference] = (),
        normalize: bool = False,
    ) -> RegisteredSchema:
        """Add a schema to a subject; one that it has already is answered as it is."""
        return self._run(
            self._async.register(
                subject, schema, kind=kind, references=references, normalize=normalize
            )
        )

    def look_up(
        self,
        subject: str,
        schema: str | Schema,
        *,
        kind: str = "avro",
        references: Sequence[Reference] = (),
        normalize: bool = False,
    ) -> RegisteredSchema:
        """The version of a subject that has this schema."""
        return self._run(
            self._async.look_up(
                subject, schema, kind=kind, references=references, normalize=normalize
            )
        )

    def by_id(self, number: int) -> Schema:
        return self._run(self._async.by_id(number))

    def by_guid(self, guid: str) -> Schema:
        return self._run(self._async.by_guid(guid))

    def latest(self, subject: str) -> RegisteredSchema:
        return self._run(self._async.latest(subject))

    def version(self, subject: str, number: int | None) -> RegisteredSchema:
        """One version; None is the latest."""
        return self._run(self._async.version(subject, number))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        return self._run(self._async.versions(subject, deleted=deleted))

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        return self._run(self._async.subjects(prefix, deleted=deleted))

    def check(
        self,
        subject: str,
        schema: str | Schema,
        *,
        kind: str = "avro",
        references: Sequence[Reference] = (),
    ) -> Compatibility:
        """Whether a schema could be registered for a subject."""
        return self._run(self._async.check(subject, schema, kind=kind, references=references))

    def config(self, subject: str | None = None) -> str:
        """The compatibility level that counts for a subject, or for all."""
        return self._run(self._async.config(subject))

    def set_config(self, level: str | None, subject: str | None = None) -> None:
        """Set the level of a subject, or of all; None removes it."""
        self._run(self._async.set_config(level, subject))

    def mode(self, subject: str | None = None) -> str:
        """The mode that counts for a subject, or for all."""
        return self._run(self._async.mode(subject))

    def set_mode(
        self, mode: str | None, subject: str | None = None, *, force: bool = False
    ) -> None:
        """Set the mode of a subject, or of all; None removes it."""
        self._run(self._async.set_mode(mode, subject, force=force))

    def delete(
        self, subject: str, version: int | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Delete a version, or the whole subject; `permanent` what is soft-deleted."""
        return self._run(self._async.delete(subject, version, permanent=permanent))

    def close(self) -> None:
        self._run(self._async.close())
