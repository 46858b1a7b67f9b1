"""Changes and images as JSON text, for stores. The dataclasses are the schema.

Text because the store should be readable with nothing but the sqlite3 shell. Reading is strict: a
field that is missing, unknown or of another type raises `UndecodableMetadata`, because a
guess could change the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from ottla.metadata import image
from ottla.metadata.changes import configs, nodes, topics
from ottla.metadata.changes.apply import Change
from ottla.metadata.image import MetadataImage

_CHANGE_TYPES: Final[Mapping[str, type[Change]]] = {
    kind.__name__: kind for kind in get_args(Change)
}
# What the annotations of the dataclasses may name: the modules import some for type checkers only.
_NAMES: Final = {
    "Mapping": Mapping,
    **vars(image),
    **vars(topics),
    **vars(nodes),
    **vars(configs),
}


_T = TypeVar("_T")


class UndecodableMetadata(ValueError):
    """The stored text is malformed or unknown."""


def encode_change(change: Change) -> str:
    return _dump({"change": type(change).__name__, **_encoded_fields(change)})


def decode_change(text: str) -> Change:
    value = _load(text)
    kind = _CHANGE_TYPES.get(cast("str", value.pop("change", None)))
    if kind is None:
        raise UndecodableMetadata(f"not a known change: {text[:80]!r}")
    return cast("Change", _decode(kind, value))


def encode_image(value: MetadataImage) -> str:
    return _dump(_encoded_fields(value))


def decode_image(text: str) -> MetadataImage:
    return cast("MetadataImage", _decode(MetadataImage, _load(text)))


def _dump(value: dict[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _load(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UndecodableMetadata(str(error)) from error
    if not isinstance(value, dict):
        raise UndecodableMetadata(f"not an object: {text[:80]!r}")
    return value


def _encoded_fields(value: object) -> dict[str, object]:
    return {name: _encode(getattr(value, name)) for name in _field_types(cast("type", type(value)))}


def _encode(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if is_dataclass(value):
        return _encoded_fields(value)
    return value


@cache
def _field_types(kind: type) -> Mapping[str, object]:
    hints = get_type_hints(kind, _NAMES)
    return {each.name: hints[each.name] for each in fields(kind)}


@cache
def _required(kind: type) -> frozenset[str]:
    return frozenset(
        each.name
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    )


def _decode(expected: object, value: object) -> object:
    origin = get_origin(expected)
    if origin in {Union, UnionType}:
        return _decode_optional(get_args(expected), value)
    if origin is Mapping:
        return _decode_mapping(get_args(expected), value)
    if origin is tuple:
        item = get_args(expected)[0]
        return tuple(_decode(item, each) for each in _as(list, value))
    kind = cast("type", expected)
    if is_dataclass(kind):
        return _decode_dataclass(kind, _as(dict, value))
    if kind is UUID:
        return _decode_uuid(value)
    if issubclass(kind, IntEnum):
        return _decode_enum(kind, value)
    return _as(kind, value)


def _decode_optional(options: tuple[object, ...], value: object) -> object:
    if value is None and NoneType in options:
        return None
    (only,) = (option for option in options if option is not NoneType)
    return _decode(only, value)


def _decode_mapping(kinds: tuple[object, ...], value: object) -> dict[object, object]:
    key_kind, item_kind = kinds
    return {
        _decode_key(key_kind, key): _decode(item_kind, item)
        for key, item in _as(dict, value).items()
    }


def _decode_key(kind: object, key: str) -> object:
    """Turn a JSON key, which is text, back into a node id or topic id."""
    if kind is int:
        try:
            return int(key)
        except ValueError as error:
            raise UndecodableMetadata(f"not a number: {key!r}") from error
    return _decode(kind, key)


def _decode_dataclass(kind: type, value: dict[str, object]) -> object:
    types = _field_types(kind)
    wrong = (value.keys() - types.keys()) | (_required(kind) - value.keys())
    if wrong:
        raise UndecodableMetadata(f"{kind.__name__} with unknown or missing {sorted(wrong)}")
    return kind(**{name: _decode(types[name], item) for name, item in value.items()})


def _decode_uuid(value: object) -> UUID:
    try:
        return UUID(_as(str, value))
    except ValueError as error:
        raise UndecodableMetadata(f"not a UUID: {value!r}") from error


def _decode_enum(kind: type[IntEnum], value: object) -> IntEnum:
    try:
        return kind(_as(int, value))
    except ValueError as error:
        raise UndecodableMetadata(str(error)) from error


def _as(kind: type[_T], value: object) -> _T:
    if type(value) is not kind:
        raise UndecodableMetadata(f"{kind.__name__} expected, got {value!r:.80}")
    return value
