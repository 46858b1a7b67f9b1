"""Check the broker and its topics before Spark starts.

Missing topics that flows write to are created, so that their readers can start. Topics of sources
are not created, so that a misspelt name is noticed.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.bootstrap import BadBootstrap
from ottla.client.errors import BrokerUnreachable, ClientError
from ottla.client.producer.types import ProducerRecord
from ottla.spark.errors import BadOption
from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.graph import sources_of, topics_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.client.security import Security
    from ottla.spark.pipelines.model import Definition, Flow, Source

PATIENCE_SECONDS: Final = 10.0


def prepare(
    bootstrap: str,
    definition: Definition,
    flows: Sequence[Flow],
    kafka: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create missing topics if allowed; else raise `EnvironmentProblem`.

    `kafka` are the pipeline's settings of connections.
    """
    from ottla.sync import Admin

    sources = _ours(definition, flows)
    written = {target.name: target for flow in flows for target in flow.topics_written()}
    written |= {
        target.name: target
        for flow in flows
        for name in flow.reads
        if name in definition.flows
        for target in definition.flows[name].topics_written()
    }
    if not sources and not written:
        return
    try:
        with Admin(bootstrap, api_timeout=PATIENCE_SECONDS, security=security_of(kafka)) as admin:
            admin.connect()
            there = {one.name for one in admin.list_topics()}
            missing = {name for one in sources for name in topics_of(one)} - there - set(written)
            if missing:
                raise EnvironmentProblem(
                    f"there is no topic {', '.join(sorted(missing))} at {bootstrap}: "
                    f"ottla topic create {min(missing)} --bootstrap {bootstrap}"
                )
            for name, target in written.items():
                if name not in there:
                    admin.create_topic(name, target.partitions or -1)
    except BadBootstrap as error:
        raise DefinitionError(str(error)) from error
    except BrokerUnreachable as error:
        raise EnvironmentProblem(
            f"{error}; is a broker running there? --bootstrap names another, --embedded starts one"
        ) from error
    except ClientError as error:
        raise EnvironmentProblem(f"the broker at {bootstrap} refuses: {error}") from error


def connection(bootstrap: str, kafka: Mapping[str, str]) -> dict[str, str]:
    """Options of the format that say how the pipeline connects."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        **{f"kafka.{name}": value for name, value in kafka.items()},
    }


def security_of(kafka: Mapping[str, str]) -> Security:
    """How the pipeline connects, by its `kafka` settings."""
    from ottla.spark.client_settings import client_settings

    try:
        options = {f"kafka.{name}": value for name, value in kafka.items()}
        return client_settings(options, writes=False, has_brokers=False).security
    except BadOption as error:
        raise DefinitionError(str(error)) from error


def fill(bootstrap: str, definition: Definition) -> int:
    """Write the samples of a pipeline to a broker that was started for this run."""
    from ottla.sync import Admin, Producer

    count = 0
    with Admin(bootstrap) as admin:
        there = {one.name for one in admin.list_topics()}
        new = {
            name
            for source in definition.sources.values()
            if source.needs_broker
            for name in topics_of(source)
        } - there
        for name in sorted(new):
            admin.create_topic(name)
    with Producer(bootstrap) as producer:
        for name, function in definition.samples.items():
            topic = topics_of(definition.sources[name])[0]
            if topic in new:  # the broker kept them from an earlier run
                records = _sampled(name, function)
                producer.send_many(topic, records)
                count += len(records)
    return count


def _sampled(name: str, function: Callable[[], Iterable[object]]) -> list[ProducerRecord]:
    try:
        return as_records(name, function())
    except DefinitionError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise DefinitionError(f"@samples of {name} failed: {said}") from error


def as_records(name: str, found: Iterable[object]) -> list[ProducerRecord]:
    """Samples as records: dicts become JSON."""
    records = []
    for one in found:
        if isinstance(one, dict):
            value = json.dumps(one).encode()
        elif isinstance(one, str):
            value = one.encode()
        elif isinstance(one, bytes):
            value = one
        else:
            kind = type(one).__name__
            raise DefinitionError(f"samples of {name} are dicts, text or bytes, not {kind}")
        records.append(ProducerRecord(value))
    return records


def _ours(definition: Definition, flows: Sequence[Flow]) -> list[Source]:
    found = {one.name: one for flow in flows for one in sources_of(definition, flow)}
    return [one for one in found.values() if one.needs_broker]
