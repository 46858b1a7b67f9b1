"""Arguments of public calls, checked before anything is queued or sent.

Each function takes the name of an argument and its value. It returns the value in the form that the
client works with, or raises `WrongType` or `BadArgument`, which name the argument, what is expected
and what was given. A client that has refused an argument goes on working.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import BadArgument, WrongType
from ottla.wire.columns import UnknownColumn, check_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ottla.wire.records import Headers

T = TypeVar("T")

INT16: Final = 2**15 - 1
INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
LONGEST_TEXT: Final = INT16  # bytes; the length of a string on the wire is an int16
LONGEST_WAIT: Final = 1e9  # seconds, about 30 years; event loops fail beyond a few centuries

_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = 80


def seen(given: object) -> str:
    """The given value, shortened."""
    said = _shorten.repr(given)
    return said if given is None else f"{said} ({type(given).__name__})"


def wrong_type(name: str, wanted: str, given: object) -> WrongType:
    """The error for an argument of the wrong type."""
    return WrongType(f"{name}: expected {wanted}, got {seen(given)}")


def bad_value(name: str, wanted: str, given: object) -> BadArgument:
    """The error for an invalid value."""
    return BadArgument(f"{name}: expected {wanted}, got {_shorten.repr(given)}")


def text(name: str, given: object, wanted: str = "a name") -> str:
    """A string with something in it, that a request can carry."""
    if not isinstance(given, str):
        raise wrong_type(name, f"{wanted} (str)", given)
    if not given:
        raise BadArgument(f"{name}: expected {wanted}, got an empty string")
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        raise BadArgument(f"{name}: {_shorten.repr(given)} cannot be encoded as UTF-8") from None
    if size > LONGEST_TEXT:
        raise BadArgument(f"{name}: expected at most {LONGEST_TEXT} bytes, got {size}")
    return given


def optional_text(name: str, given: object, wanted: str = "a name") -> str | None:
    """As `text`, or None."""
    return None if given is None else text(name, given, wanted + " or None")


def texts(name: str, given: object) -> list[str]:
    """Names, each once and in their order. A lone string is refused: its letters are not meant."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        example = f"[{given!r}]" if isinstance(given, str) else '["orders"]'
        raise wrong_type(name, f"a list of names, such as {example}", given)
    return list(dict.fromkeys(text(f"{name}[{at}]", one) for at, one in enumerate(given)))


def flag(name: str, given: object) -> bool:
    """True or False."""
    if not isinstance(given, bool):
        raise wrong_type(name, "True or False", given)
    return given


def whole(
    name: str, given: object, least: int = 0, most: int = INT32, wanted: str = "a whole number"
) -> int:
    """A whole number in a range; numpy's integers are accepted too."""
    if isinstance(given, bool):
        raise wrong_type(name, wanted, given)
    try:
        number = operator.index(given)  # type: ignore[arg-type]  # raises for other types
    except TypeError:
        raise wrong_type(name, wanted, given) from None
    if number < least:
        raise bad_value(name, f"{least} or more", number)
    if number > most:
        raise bad_value(name, f"at most {most}", number)
    return number


def wholes(name: str, given: object, most: int) -> list[int]:
    """Whole numbers from 0 on, in any iterable."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong_type(name, "a list of whole numbers", given)
    return [whole(f"{name}[{at}]", one, 0, most) for at, one in enumerate(given)]


def optional_whole(name: str, given: object, least: int = 0, most: int = INT32) -> int | None:
    """As `whole`, or None."""
    return None if given is None else whole(name, given, least, most, "a whole number or None")


def real(name: str, given: object, least: float, most: float, wanted: str) -> float:
    """A number in a range."""
    if isinstance(given, bool) or not isinstance(given, Real):
        raise wrong_type(name, wanted, given)
    try:
        number = float(given)
    except OverflowError:
        number = math.inf
    if math.isnan(number) or number < least:
        raise bad_value(name, f"{least:g} or more", given)
    if number > most:
        raise bad_value(name, f"at most {most:g}", given)
    return number


def seconds(name: str, given: object, least: float = 0.0) -> float:
    """A time in seconds; infinity is as long as it gets."""
    if given == math.inf:
        return LONGEST_WAIT
    return real(name, given, least, LONGEST_WAIT, "a number of seconds")


def carried_seconds(name: str, given: object, least: float = 0.0) -> float:
    """A time in seconds that a request carries, in milliseconds as an int32: 24 days at most."""
    return real(name, given, least, INT32 // 1000, "a number of seconds")


def optional_seconds(name: str, given: object) -> float | None:
    """As `seconds`, or None."""
    return None if given is None else seconds(name, given)


def milliseconds(name: str, given: object, least: float = 1) -> float:
    """A time in milliseconds, for a setting that Kafka names."""
    return real(name, given, least, LONGEST_WAIT * 1000, "a number of milliseconds")


def choice(name: str, given: T, choices: Collection[str]) -> T:
    """Check that the value is one of these words."""
    if not isinstance(given, str):
        raise wrong_type(name, f"one of {', '.join(choices)}", given)
    if given not in choices:
        raise bad_value(name, f"one of {', '.join(choices)}", given)
    return given


def function(name: str, given: T) -> T:
    """Something to call."""
    if not callable(given):
        raise wrong_type(name, "a function", given)
    return given


def optional_function(name: str, given: T) -> T:
    """As `function`, or None."""
    return given if given is None else function(name, given)


def instance(name: str, given: object, kind: type[T], wanted: str) -> T:
    """A value of a type."""
    if not isinstance(given, kind):
        raise wrong_type(name, wanted, given)
    return given


def mapping(name: str, given: object, wanted: str) -> Mapping[Any, Any]:
    """Check that it is a mapping; the caller checks its content."""
    if not isinstance(given, Mapping):
        raise wrong_type(name, wanted, given)
    return given


def partition(name: str, given: object) -> TopicPartition:
    """A topic and the number of one of its partitions."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise wrong_type(name, 'a partition such as ("orders", 0)', given)
    return TopicPartition(text(f"{name}: topic", given[0]), whole(f"{name}: partition", given[1]))


def partitions(name: str, given: object) -> list[TopicPartition]:
    """Partitions, in any iterable."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong_type(name, 'a list of partitions such as [("orders", 0)]', given)
    return [partition(f"{name}[{at}]", one) for at, one in enumerate(given)]


def places(name: str, given: object) -> list[str | TopicPartition]:
    """Topics by name, and single partitions."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        wanted = 'a list of topics and partitions, such as ["orders", ("t", 0)]'
        raise wrong_type(name, wanted, given)
    return [
        text(f"{name}[{at}]", one) if isinstance(one, str) else partition(f"{name}[{at}]", one)
        for at, one in enumerate(given)
    ]


def offsets(name: str, given: object, least: int = 0) -> dict[TopicPartition, int]:
    """Offsets by partition."""
    found = mapping(name, given, 'offsets by partition, such as {("orders", 0): 42}')
    return {
        partition(f"{name}: key", key): whole(f"{name}[{key!r}]", offset, least, INT64, "an offset")
        for key, offset in found.items()
    }


def settings(name: str, given: object, *, nullable: bool) -> dict[str, str | None]:
    """Kafka's settings by name, as the strings that the protocol carries."""
    found = mapping(name, given, 'settings by name, such as {"retention.ms": "60000"}')
    checked: dict[str, str | None] = {}
    for key, value in found.items():
        text(f"{name}: key", key)
        if value is None and nullable:
            checked[key] = None
        elif isinstance(value, bool):
            checked[key] = str(value).lower()
        elif isinstance(value, int | float):
            checked[key] = str(value)
        else:
            # An empty string is a value; other empty values are not.
            is_empty = isinstance(value, str) and not value
            checked[key] = "" if is_empty else text(f"{name}[{key!r}]", value, "a string or number")
    return checked


def columns(name: str, given: object) -> tuple[str, ...]:
    """Names of the columns of records."""
    names = tuple(texts(name, given))
    try:
        check_columns(names)
    except UnknownColumn as error:
        raise BadArgument(f"{name}: {error}") from None
    return names


def versions(name: str, given: object) -> dict[int, int]:
    """The newest version to use, by API key; -1: do not use the API."""
    if given is None:
        return {}
    return {
        whole(f"{name}: key", key, 0, INT16): whole(f"{name}[{key!r}]", version, -1, INT16)
        for key, version in mapping(name, given, "versions by API key").items()
    }


# Records: called for each one, so a valid record must cost only a few comparisons.


def payload(name: str, given: object) -> None:
    """Keys and values are bytes; text has to be encoded by the caller."""
    if given is not None and not isinstance(given, bytes):
        raise WrongType(
            f"{name}: expected bytes or None, got {type(given).__name__}; encode it first"
        )


def timestamp(name: str, given: object) -> int:
    """Milliseconds since 1970."""
    if isinstance(given, float):
        raise wrong_type(name, "whole milliseconds since 1970, such as int(given)", given)
    return whole(name, given, 0, INT64, "milliseconds since 1970 (int)")


def are_plain_headers(given: object) -> TypeGuard[Sequence[tuple[str, bytes | None]]]:
    """Whether these are headers as most callers give them, for which nothing has to be done.

    One line for each header: this is in the way of every record that has some.
    """
    if type(given) is not list and type(given) is not tuple:
        return False
    try:
        for key, value in given:
            if type(key) is not str or (type(value) is not bytes and value is not None):
                return False
            if not key.isascii():
                return False
    except (TypeError, ValueError):  # no pair
        return False
    return True


def headers(name: str, given: object) -> Headers:
    """Pairs of a name and bytes or None, from a sequence of pairs or a mapping."""
    wanted = 'a sequence of pairs such as [("trace", b"1")], or a mapping'
    if isinstance(given, Mapping):
        given = given.items()
    elif isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong_type(name, wanted, given)
    return tuple(_header(f"{name}[{at}]", one) for at, one in enumerate(given))


def _header(name: str, given: object) -> tuple[str, bytes | None]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise wrong_type(name, 'a pair such as ("trace", b"1")', given)
    key, value = given
    if not isinstance(key, str):
        raise wrong_type(f"{name}: name", "str", key)
    try:
        key.encode()
    except UnicodeEncodeError:
        raise BadArgument(f"{name}: {_shorten.repr(key)} cannot be encoded as UTF-8") from None
    payload(f"{name}: value of {key!r}", value)
    return key, value
