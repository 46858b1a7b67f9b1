"""Changes and images as JSON text, for stores. Dataclasses and named tuples are the schema.

Text because the store should be readable with nothing but the sqlite3 shell; bytes are base64.
Reading is strict: a field that is missing, unknown or of another type raises
`UndecodableMetadata`, because a guess could change the cluster.

The decoder of a type is composed once, of the decoders of its fields: an image may have 100,000
ACLs, and a start reads them all.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import IntEnum
from functools import cache, partial
from operator import itemgetter
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from ottla.metadata import image
from ottla.metadata.changes import configs, nodes, topics
from ottla.metadata.changes.apply import PlainChange
from ottla.metadata.image import MetadataImage

if TYPE_CHECKING:
    from ottla.metadata.changes.apply import Change

# Fields that older brokers have written and that mean nothing now.
_RETIRED: Final = {image.Partition: frozenset({"isr"})}
_PLAIN_TYPES: Final = {kind.__name__: kind for kind in get_args(PlainChange)}


@cache
def _security_types() -> Mapping[str, type[Change]]:
    """Loaded where a store has users, ACLs or quotas."""
    from ottla.metadata.changes.security import SecurityChange

    return {kind.__name__: kind for kind in get_args(SecurityChange)}


@cache
def _names() -> dict[str, Any]:
    """What annotations may name: the modules import some for type checkers only."""
    from ottla.metadata.changes import security
    from ottla.metadata.security import acls, quotas, users

    return {
        **_PLAIN_NAMES,
        **vars(security),
        **vars(acls),
        **vars(quotas),
        **vars(users),
    }


_PLAIN_NAMES: Final = {
    "Mapping": Mapping,
    **vars(image),
    **vars(topics),
    **vars(nodes),
    **vars(configs),
}

_T = TypeVar("_T")
Decoder: TypeAlias = Callable[[Any], Any]


class UndecodableMetadata(ValueError):
    """The stored text is malformed or unknown."""


def encode_change(change: Change) -> str:
    return _dump({"change": type(change).__name__, **_encoded_fields(change)})


def decode_change(text: str) -> Change:
    value = _load(text)
    name = cast("str", value.pop("change", None))
    kind = _PLAIN_TYPES.get(name) or _security_types().get(name)
    if kind is None:
        raise UndecodableMetadata(f"not a known change: {text[:80]!r}")
    return cast("Change", _decoder(cast("Hashable", kind))(value))


def encode_image(value: MetadataImage) -> str:
    return _dump(_encoded_fields(value))


def decode_image(text: str) -> MetadataImage:
    return cast("MetadataImage", _decoder(MetadataImage)(_load(text)))


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
    return {
        name: _encode(getattr(value, name)) for name in _schema(cast("Hashable", type(value))).kinds
    }


def _encode(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return [_encode(item) for item in sorted(value)]
    if is_dataclass(value) or hasattr(value, "_fields"):
        return _encoded_fields(value)
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


class _Schema(NamedTuple):
    """The fields of a dataclass or a named tuple: their types, and those without a default."""

    kinds: Mapping[str, object]
    required: frozenset[str]


@cache
def _schema(kind: Any) -> _Schema:
    try:
        hints = get_type_hints(kind, _PLAIN_NAMES)
    except NameError:  # of a type of users, ACLs or quotas
        hints = get_type_hints(kind, _names())
    if is_dataclass(kind):
        names = [each.name for each in fields(kind)]
        required = frozenset(
            each.name
            for each in fields(kind)
            if each.default is MISSING and each.default_factory is MISSING
        )
    else:
        names = list(kind._fields)
        required = frozenset(names) - kind._field_defaults.keys()
    return _Schema({name: hints[name] for name in names}, required)


@cache
def _decoder(expected: Any) -> Decoder:
    origin = get_origin(expected)
    if origin in {Union, UnionType}:
        options = get_args(expected)
        (only,) = (_decoder(option) for option in options if option is not NoneType)
        return partial(_decode_optional, only)
    if origin is Mapping:
        key, item = get_args(expected)
        return partial(_decode_mapping, _key_decoder(key), _decoder(item))
    if origin in {tuple, frozenset}:
        return partial(_decode_items, origin, _decoder(get_args(expected)[0]))
    kind = cast("type[Any]", expected)
    if len(getattr(kind, "_fields", ())) > 1 and not kind._field_defaults:
        return _tuple_decoder(kind)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _fields_decoder(kind)
    if kind is UUID:
        return _decode_uuid
    if kind is bytes:
        return _decode_bytes
    if issubclass(kind, IntEnum):
        return partial(_decode_enum, kind, {each.value: each for each in kind})
    return partial(_as, kind)


def _decode_optional(only: Decoder, value: object) -> object:
    return None if value is None else only(value)


def _decode_items(kind: type, item: Decoder, value: object) -> object:
    return kind(map(item, _as(list, value)))


def _decode_mapping(key: Decoder, item: Decoder, value: object) -> dict[object, object]:
    return {key(name): item(each) for name, each in _as(dict, value).items()}


def _key_decoder(kind: object) -> Decoder:
    """JSON's keys are text; node ids and topic ids are not."""
    return _decode_number if kind is int else _decoder(kind)


def _decode_number(key: str) -> int:
    try:
        return int(key)
    except ValueError as error:
        raise UndecodableMetadata(f"not a number: {key!r}") from error


def _fields_decoder(kind: type[Any]) -> Decoder:
    kinds, required = _schema(cast("Hashable", kind))
    decoders = {name: _decoder(each) for name, each in kinds.items()}
    plain = {name: each for name, each in kinds.items() if each in {str, int, float, bool}}
    known = kinds.keys()
    retired = _RETIRED.get(kind, frozenset[str]())

    def decode(value: object) -> object:
        given = _as(dict, value)
        if retired:
            given = {name: item for name, item in given.items() if name not in retired}
        names = given.keys()
        if not (required <= names <= known):
            wrong = (names - known) | (required - names)
            raise UndecodableMetadata(f"{kind.__name__} with unknown or missing {sorted(wrong)}")
        return kind(
            **{
                name: item if type(item) is plain.get(name) else decoders[name](item)
                for name, item in given.items()
            }
        )

    return decode


def _tuple_decoder(kind: type[Any]) -> Decoder:
    """Of a named tuple with no defaults. There may be 100,000 ACLs, so what is right is quick."""
    kinds = _schema(cast("Hashable", kind)).kinds
    explain = _fields_decoder(kind)
    items = itemgetter(*kinds)
    makers = [_quick(each) for each in kinds.values()]
    make, count = kind._make, len(kinds)

    def decode(value: object) -> object:
        if type(value) is dict and len(value) == count:
            try:
                return make(
                    [
                        each[type(item)](item)
                        for each, item in zip(makers, items(value), strict=True)
                    ]
                )
            except (KeyError, TypeError):
                pass  # a field that is unknown, missing or of another type
        return explain(value)

    return decode


def _quick(kind: Any) -> Mapping[type, Decoder]:
    """What to do with a value, by the only type that it may have in JSON."""
    if kind in {str, int, float, bool}:
        return {kind: _same}
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return {int: {each.value: each for each in kind}.__getitem__}
    return {}


def _same(value: object) -> object:
    return value


def _decode_uuid(value: object) -> UUID:
    try:
        return UUID(_as(str, value))
    except ValueError as error:
        raise UndecodableMetadata(f"not a UUID: {value!r}") from error


def _decode_bytes(value: object) -> bytes:
    try:
        return base64.b64decode(_as(str, value), validate=True)
    except binascii.Error as error:
        raise UndecodableMetadata(f"not base64: {error}") from error


def _decode_enum(kind: type[IntEnum], members: Mapping[int, IntEnum], value: object) -> IntEnum:
    found = members.get(_as(int, value))
    if found is None:
        raise UndecodableMetadata(f"{value} is not a valid {kind.__name__}")
    return found


def _as(kind: type[_T], value: object) -> _T:
    if type(value) is not kind:
        raise UndecodableMetadata(f"{kind.__name__} expected, got {value!r:.80}")
    return value
