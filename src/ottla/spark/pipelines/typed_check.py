"""Checks of columns before Spark starts: schemas of sources, fields of flows, Iceberg tables."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.fields import nearest, unknown_in_function, unknown_in_sql
from ottla.spark.pipelines.graph import parameter_for, sources_of
from ottla.spark.pipelines.model import FromRegistry, ToTable
from ottla.spark.pipelines.preflight import connection
from ottla.spark.pipelines.table_sources import source_table
from ottla.spark.pipelines.typed_sources import declared_columns, source_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ottla.spark.pipelines.load import Pipeline
    from ottla.spark.pipelines.model import Flow, Source


def check_columns(
    pipeline: Pipeline, flows: Sequence[Flow], bootstrap: str
) -> Mapping[str, pa.Schema]:
    """The columns of each source that has them; `DefinitionError` with all problems."""
    sources = {one.name: one for flow in flows for one in sources_of(pipeline.definition, flow)}
    columns = declared_columns(sources.values())
    problems: list[str] = []
    for one in sources.values():
        if isinstance(one.schema, FromRegistry):
            try:
                found = source_schema(bootstrap, one, pipeline.settings.kafka)
                columns[one.name] = found.columns
            except DefinitionError as error:
                problems += error.problems
        if one.table is not None:
            try:
                columns[one.name] = _table_columns(pipeline, one, bootstrap)
            except DefinitionError as error:
                problems += error.problems
    for flow in pipeline.definition.flows.values():
        problems += _unknown_fields(flow, sources, columns)
    for flow in flows:
        problems += _topic_tables(pipeline, flow)
    if problems:
        raise DefinitionError(*problems)
    return columns


def _table_columns(pipeline: Pipeline, source: Source, bootstrap: str) -> pa.Schema:
    """The columns of a source that reads the table of a topic."""
    found = source_table(source, connection(bootstrap, pipeline.settings.kafka), accept_loss=True)
    from ottla.tables.archive import day_roots, with_day_field

    has_day = day_roots(found.view.files) is not None
    return with_day_field(found.columns) if has_day else found.columns


def _unknown_fields(
    flow: Flow, sources: Mapping[str, Source], columns: Mapping[str, pa.Schema]
) -> Iterator[str]:
    # A source with a function of its own has the columns which that returns.
    known = {
        parameter_for(name): columns[name]
        for name in flow.reads
        if name in columns and sources[name].shape is None
    }
    if flow.sql is not None and len(known) == len(flow.reads):
        name = unknown_in_sql(flow.sql, known)
        if name is not None:
            every = [one for schema in known.values() for one in schema.names]
            yield (
                f"flow {flow.name}: {' and '.join(flow.reads)} have no field {name}; "
                f"{nearest(name, every)}"
            )
    elif flow.function is not None:
        names = {parameter: schema.names for parameter, schema in known.items()}
        for parameter, name in unknown_in_function(flow.function, names):
            yield (
                f"flow {flow.name}: {parameter} has no field {name}; "
                f"{nearest(name, names[parameter])}"
            )


def _topic_tables(pipeline: Pipeline, flow: Flow) -> Iterator[str]:
    """A flow must not write the table of a topic."""
    if not isinstance(flow.writes, ToTable) or not flow.writes.is_iceberg:
        return
    from ottla.spark.pipelines.iceberg_sink import flow_table, has_catalog, open_sink
    from ottla.tables.errors import TableError

    where = flow_table(pipeline.places, flow.writes)
    if not has_catalog(where):
        return
    try:
        with closing(open_sink(where)) as sink:
            sink.check()
    except TableError as error:
        yield f"flow {flow.name}: {error}"
