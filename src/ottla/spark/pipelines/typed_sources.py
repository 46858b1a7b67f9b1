"""Sources and topics whose values have schemas in a registry.

- The schema of a run is fixed when it starts: the driver asks for the subject's version once.
  Values of other versions are resolved to it: further fields are left out, missing ones are null
  or have their default.
- Several topics of one source must have one schema.
- A topic that a flow writes gets the schema of the flow's columns. It is registered before the
  query starts: one that the subject's level refuses fails the start, not a batch.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.graph import topics_of
from ottla.spark.pipelines.model import OUR_FORMAT, FromRegistry
from ottla.spark.pipelines.preflight import PATIENCE_SECONDS, security_of
from ottla.spark.typed_options import ERROR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from ottla.schemas.model import Schema
    from ottla.schemas.registry_client import BlockingRegistry
    from ottla.spark.pipelines.model import Source, ToTopic

NO_SUCH_SUBJECT: Final = (40401, 40402)


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """The schema of a source in this run."""

    subject: str
    version: int
    id: int
    columns: pa.Schema
    url: str
    invalid: str

    def options(self) -> dict[str, str]:
        """Options of the format."""
        more = [ERROR] if self.invalid == "null" else []
        names = [*self.columns.names, *more]
        found = {
            "valueFormat": "registry-latest",
            "valueSchemaId": str(self.id),
            "valueSubject": self.subject,
            "schemaRegistryUrl": self.url,
            "invalid": self.invalid,
        }
        return found if any("," in one for one in names) else {**found, "columns": ",".join(names)}


def registry_url(bootstrap: str, wanted: FromRegistry, kafka: Mapping[str, str], what: str) -> str:
    """Where the registry is: as the file says, else as the brokers say."""
    from ottla.client.errors import ClientError
    from ottla.sync import Admin

    if wanted.url is not None:
        return wanted.url
    try:
        with Admin(bootstrap, api_timeout=PATIENCE_SECONDS, security=security_of(kafka)) as admin:
            found = admin.registry_url()
    except (ClientError, ValueError) as error:
        raise EnvironmentProblem(f"{what}: no broker at {bootstrap}: {error}") from error
    if found is None:
        raise EnvironmentProblem(
            f"{what} has its schema in a registry, and the brokers at {bootstrap} have none: start "
            "them with --registry, or give registry(url=...)"
        )
    return found


def source_schema(bootstrap: str, source: Source, kafka: Mapping[str, str]) -> SourceSchema:
    """Ask the registry; `DefinitionError` if there is no such schema."""
    from ottla.schemas.registry_client import BlockingRegistry, RegistryUnreachable

    wanted = source.schema
    assert isinstance(wanted, FromRegistry)
    url = registry_url(bootstrap, wanted, kafka, f"source {source.name}")
    subjects = [wanted.subject] if wanted.subject else [f"{one}-value" for one in topics_of(source)]
    asked = BlockingRegistry(url, security=security_of(kafka), timeout=PATIENCE_SECONDS)
    try:
        with closing(asked) as registry:
            found = {one: _version(registry, source, one, wanted.version) for one in subjects}
            columns = {one: _columns(registry, source, found[one][2]) for one in subjects}
    except RegistryUnreachable as error:
        raise EnvironmentProblem(f"source {source.name}: {error}") from error
    first = subjects[0]
    for other in subjects[1:]:
        if not columns[other].equals(columns[first]):
            raise DefinitionError(
                f"source {source.name} reads topics of different schemas ({first} and {other}): "
                "make it two sources, or name the subject for both"
            )
    version, number, _ = found[first]
    return SourceSchema(first, version, number, columns[first], url, wanted.invalid)


def _version(
    registry: BlockingRegistry, source: Source, subject: str, version: str
) -> tuple[int, int, Schema]:
    from urllib.parse import quote

    from ottla.schemas.registry_client import RegistryRefused, schema_of

    try:
        path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"
        answer = registry.request("GET", path)
    except RegistryRefused as error:
        if error.code in NO_SUCH_SUBJECT:
            raise DefinitionError(
                f"source {source.name}: the registry at {registry.url} has no version {version} of "
                f"subject {subject}: ottla registry add {subject} FILE"
            ) from None
        raise EnvironmentProblem(f"source {source.name}: {error}") from error
    return int(answer["version"]), int(answer["id"]), schema_of(answer)


def _columns(registry: BlockingRegistry, source: Source, schema: Schema) -> pa.Schema:
    from ottla.schemas.cache import SchemaCache
    from ottla.schemas.columns import columns_of
    from ottla.schemas.model import SchemaError

    try:
        return columns_of(schema, SchemaCache(registry).references(schema))
    except SchemaError as error:
        raise DefinitionError(f"source {source.name}: {error}") from error


def registered(bootstrap: str, target: ToTopic, schema: Schema, kafka: Mapping[str, str]) -> int:
    """Register the schema of a topic that a flow writes; its id."""
    from urllib.parse import quote

    from ottla.schemas.registry_client import (
        BlockingRegistry,
        RegistryRefused,
        RegistryUnreachable,
    )

    wanted = target.schema
    assert wanted is not None
    what = f"topic {target.name}"
    subject = wanted.subject or f"{target.name}-value"
    url = registry_url(bootstrap, wanted, kafka, what)
    asked = BlockingRegistry(url, security=security_of(kafka), timeout=PATIENCE_SECONDS)
    try:
        with closing(asked) as registry:
            path = f"/subjects/{quote(subject, safe='')}/versions"
            answer = registry.request("POST", path, None, {"schema": schema.text})
    except RegistryRefused as error:
        raise DefinitionError(
            f"{what}: subject {subject} refuses the flow's columns: {error}"
        ) from None
    except RegistryUnreachable as error:
        raise EnvironmentProblem(f"{what}: {error}") from error
    return int(answer["id"])


def declared_columns(sources: Iterable[Source]) -> dict[str, pa.Schema]:
    """The columns of sources that say them as Spark's DDL; those that only Spark can read not."""
    texts = {
        one.name: one.schema
        for one in sources
        if isinstance(one.schema, str) and one.format == OUR_FORMAT
    }
    if not texts:
        return {}
    from ottla.schemas.ddl import parse_ddl
    from ottla.schemas.model import SchemaError

    found = {}
    for name, text in texts.items():
        with suppress(SchemaError):
            found[name] = parse_ddl(text)
    return found
