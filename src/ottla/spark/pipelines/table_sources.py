"""Sources that read the table of a topic: its files first, then the log.

The columns of a run are those that the table has when the flow starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.pipelines.model import Source
    from ottla.tables.reading import Pinned


def source_table(source: Source, connection: Mapping[str, str], **choice: Any) -> Pinned:
    """What the source's topic has now; `DefinitionError` if it is not kept as a table."""
    try:
        from ottla.spark.tables.frames import pinned_topic
    except ImportError:
        raise EnvironmentProblem(
            f"source {source.name} reads a table, which needs: pip install 'ottla[tables]'"
        ) from None
    from ottla.client.errors import ClientError
    from ottla.tables.errors import TableError

    assert source.table is not None
    try:
        found = pinned_topic({**connection, **source.options}, source.table, **choice)
    except TableError as error:
        raise DefinitionError(f"source {source.name}: {error}") from error
    except ClientError as error:
        raise EnvironmentProblem(f"source {source.name}: {error}") from error
    if found.metadata_location is None:
        raise DefinitionError(
            f"source {source.name}: topic {source.table} has no table yet: set "
            "ottla.table.enable=true and run `ottla table run`, or give topic= in place of table="
        )
    return found
