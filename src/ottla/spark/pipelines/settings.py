"""The YAML beside a pipeline: what differs by environment, and flows that are one SQL statement.

`orders.yaml` belongs to `orders.py`; with `--env prod` the values of `orders.prod.yaml` override
it. An entry of `sources` or `flows` changes the one with that name, or creates it: a source with
its `topic`, a flow with its `sql`. `${NAME}` in a text is replaced by the environment variable, for
secrets.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.spark.pipelines.define import REGISTRY, console, registry, table, topic
from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.model import (
    Definition,
    Flow,
    FromRegistry,
    Reject,
    Source,
    Target,
    ToTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

N = TypeVar("N", Source, Flow)

_SOURCE_KEYS: Final = ("topic", "table", "share_group", "schema", "start", "format", "options")
_FLOW_KEYS: Final = (
    *("reads", "sql", "writes", "inline", "trigger", "delivery", "mode", "checkpoint"),
    *("options", "read_options", "reject"),
)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Settings:
    """Settings of one environment; None: use the command line or the default."""

    bootstrap: str | None = None
    state: str | None = None
    checkpoints: str | None = None
    tables: str | None = None
    master: str | None = None
    remote: str | None = None
    publish: bool | None = None
    """Whether a run tells `ottla.pipelines` what it does, if there is that topic; None: it does."""
    spark: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    flows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_settings(file: Path) -> Settings:
    """The settings in a YAML file."""
    try:
        import yaml
    except ImportError:
        raise EnvironmentProblem(
            f"{file.name} needs PyYAML to be read: pip install 'ottla[spark]'"
        ) from None
    try:
        found = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise DefinitionError(f"{file}: is not YAML: {' '.join(str(error).split())}") from None
    return parse_settings({} if found is None else found, file.name)


def parse_settings(found: object, where: str) -> Settings:
    """Check parsed YAML; `where` is the file name in errors."""
    given = _mapping(_filled_in(found, where), where)
    _known(given, [one.name for one in fields(Settings)], where)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("spark", "kafka"):
            values[name] = _options(value, f"{where}: {name}")
        elif name in ("sources", "flows"):
            keys = _SOURCE_KEYS if name == "sources" else _FLOW_KEYS
            values[name] = {}
            for one, entry in _mapping(value, f"{where}: {name}").items():
                values[name][one] = _mapping(entry, f"{where}: {name}.{one}")
                _known(values[name][one], keys, f"{where}: {name}.{one}")
        elif name == "publish":
            values[name] = _flag(value, f"{where}: publish")
        else:
            values[name] = str(value)
    if "master" in values and "remote" in values:
        raise DefinitionError(f"{where}: master and remote are both given: leave one out")
    return Settings(**values)


def overlay(base: Settings, over: Settings) -> Settings:
    """Merge two settings: values of the second win, mappings are merged by key."""
    changes: dict[str, Any] = {}
    for one in fields(Settings):
        new = getattr(over, one.name)
        if isinstance(new, (str, bool)):
            changes[one.name] = new
        elif new:
            changes[one.name] = _joined(getattr(base, one.name), new)
    joined = replace(base, **changes)
    if over.remote is not None:
        return replace(joined, master=None)
    return replace(joined, remote=None) if over.master is not None else joined


def apply(settings: Settings, definition: Definition) -> None:
    """Apply the settings to the declared pipeline."""
    for name, entry in settings.sources.items():
        declared_source = definition.sources.get(name)
        if declared_source is None:
            declared_source = Source(name)
            definition.add(declared_source)
        definition.sources[name] = _changed(declared_source, entry, _source_values(entry, name))
    for name, entry in settings.flows.items():
        declared = definition.flows.get(name)
        if declared is None:
            if "sql" not in entry:
                near = difflib.get_close_matches(name, definition.flows, n=1)
                meant = f"; did you mean {near[0]}?" if near else ": give it `sql` to make it one"
                raise DefinitionError(f"flows.{name} in the YAML is not a flow of the file{meant}")
            declared = Flow(name, ())
            definition.add(declared)
        definition.flows[name] = _changed(declared, entry, _flow_values(entry, name))


def _changed(node: N, entry: Mapping[str, Any], values: Mapping[str, Any]) -> N:
    joined = {
        name: {**getattr(node, name), **values[name]}
        for name in ("options", "read_options")
        if name in entry
    }
    changed: N = replace(node, **{**values, **joined})
    return changed


def _source_values(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in entry.items():
        where = f"sources.{name}.{key}"
        if key == "options":
            values[key] = _options(value, where)
        elif key == "schema":
            values[key] = _schema(value, where)
        else:
            values[key] = str(value)
    return values


def _schema(value: object, where: str) -> str | FromRegistry:
    """DDL, `registry`, or `{registry: {subject: NAME, version: 3}}`."""
    if value == REGISTRY:
        return registry()
    if not isinstance(value, dict):
        return str(value)
    given = _mapping(value, where)
    _known(given, (REGISTRY,), where)
    inside = _options(given[REGISTRY], f"{where}.{REGISTRY}")
    _known(inside, [one.name for one in fields(FromRegistry)], f"{where}.{REGISTRY}")
    return FromRegistry(**inside)


def _flow_values(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in entry.items():
        where = f"flows.{name}.{key}"
        if key == "writes":
            values[key] = _target(value, where)
        elif key == "reject":
            values[key] = _reject(value, where)
        elif key in ("options", "read_options"):
            values[key] = _options(value, where)
        elif key == "reads":
            values[key] = (value,) if isinstance(value, str) else tuple(_list(value, where))
        elif key == "inline":
            values[key] = _flag(value, where)
        else:
            values[key] = str(value)
    return values


def _target(value: object, where: str) -> Target:
    """`console`, `{topic: name, key: column}` or `{table: name, partition_by: [column]}`."""
    if value == "console":
        return console()
    given = dict(_mapping(value, where))
    if "topic" in given:
        _known(given, ("topic", "key", "partitions", "options", "schema"), where)
        if "schema" in given:
            given["schema"] = _schema(given["schema"], f"{where}.schema")
        return topic(str(given.pop("topic")), **given)
    if "table" in given:
        _known(given, ("table", "format", "partition_by", "options"), where)
        return table(str(given.pop("table")), **given)
    raise DefinitionError(f"{where}: give console, {{topic: NAME}} or {{table: NAME}}")


def _reject(value: object, where: str) -> Reject:
    given = _mapping(value, where)
    _known(given, ("to", "when"), where)
    if set(given) != {"to", "when"}:
        raise DefinitionError(f"{where}: give both `to`, a topic, and `when`, a condition")
    return Reject(ToTopic(str(given["to"])), str(given["when"]))


def _filled_in(value: object, where: str) -> object:
    if isinstance(value, dict):
        return {key: _filled_in(one, where) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled_in(one, where) for one in value]
    if not isinstance(value, str):
        return value

    def variable(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise DefinitionError(
                f"{where}: the environment variable {found[1]} is not set: export {found[1]}=..."
            )
        return os.environ[found[1]]

    return _VARIABLE.sub(variable, value)


def _joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **base,
        **{
            name: _joined(base[name], value)
            if isinstance(value, dict) and isinstance(base.get(name), dict)
            else value
            for name, value in over.items()
        },
    }


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value):
        raise DefinitionError(f"{where}: expected names with values, got {value!r}")
    return value


def _list(value: object, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise DefinitionError(f"{where}: expected a list of names, got {value!r}")
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise DefinitionError(f"{where}: expected true or false, got {value!r}")
    return value


def _options(value: object, where: str) -> dict[str, str]:
    return {
        name: str(one).lower() if isinstance(one, bool) else str(one)
        for name, one in _mapping(value, where).items()
    }


def _known(given: Mapping[str, object], names: tuple[str, ...] | list[str], where: str) -> None:
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
            raise DefinitionError(f"{where}: {name} is not known; {meant}")
