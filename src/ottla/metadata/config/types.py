"""The definition of a configuration key: type, default, allowed values, synonyms, dynamic or not.

Values travel as Kafka's strings and are parsed by the key's type: surrounding blanks do not count,
booleans are true or false in any case, lists are separated by commas. The type codes are the
protocol's (DescribeConfigs).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from ottla.metadata.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ConfigValue = bool | int | float | str | tuple[str, ...]
_T = TypeVar("_T")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
# A value may come from any client and ends in the store: nothing Kafka knows is near this long.
MAX_VALUE_LENGTH: Final = 32_768


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Rule(Protocol):
    """What a parsed value must fulfil; `str()` of it completes "expected ..."."""

    def accepts(self, value: ConfigValue) -> bool: ...


class Between(NamedTuple):
    low: float
    high: float

    def accepts(self, value: ConfigValue) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


class AtLeast(NamedTuple):
    low: int

    def accepts(self, value: ConfigValue) -> bool:
        return isinstance(value, int | float) and value >= self.low

    def __str__(self) -> str:
        return f"{self.low} or above"


class OneOf(NamedTuple):
    choices: tuple[str, ...]

    def accepts(self, value: ConfigValue) -> bool:
        return value in self.choices

    def __str__(self) -> str:
        return "one of " + ", ".join(self.choices)


class EachOf(NamedTuple):
    """A list of at least one and at most `most` of the choices, none twice."""

    choices: tuple[str, ...]
    most: int

    def accepts(self, value: ConfigValue) -> bool:
        return (
            isinstance(value, tuple)
            and 1 <= len(value) <= self.most
            and len(set(value)) == len(value)
            and set(value) <= set(self.choices)
        )

    def __str__(self) -> str:
        return f"1 to {self.most} different of " + ", ".join(self.choices)


class Matching(NamedTuple):
    """Text, or every item of a list of at least `least`, in a form that `example` shows."""

    pattern: str
    example: str
    least: int = 0

    def accepts(self, value: ConfigValue) -> bool:
        items = value if isinstance(value, tuple) else (str(value),)
        return len(items) >= self.least and all(
            re.fullmatch(self.pattern, item) is not None for item in items
        )

    def __str__(self) -> str:
        return f"like {self.example}"


class BrokerSynonym(NamedTuple):
    """A broker key that supplies the default, and how many of our units its unit is."""

    key: str
    factor: int = 1


class ConfigDef(NamedTuple):
    """One key. `bounds` names two broker keys between whose values this one must lie."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    rule: Rule | None = None
    synonyms: tuple[BrokerSynonym, ...] = ()
    dynamic: bool = True
    sensitive: bool = False
    bounds: tuple[str, str] | None = None

    def parse(self, text: str) -> ConfigValue:
        """The value, or `InvalidConfig` that names the key and what is allowed."""
        shown = "(hidden)" if self.sensitive else repr(text[:200])
        if len(text) > MAX_VALUE_LENGTH:
            raise InvalidConfig(f"at most {MAX_VALUE_LENGTH} characters", shown, self.name)
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise InvalidConfig(_TYPE_TEXT[self.type], shown, self.name) from None
        if self.rule is not None and not self.rule.accepts(value):
            raise InvalidConfig(self.rule, shown, self.name)
        return value


class TypedConfig(ABC):
    """Values by key, as the type the caller knows the key to have."""

    @abstractmethod
    def parsed(self, key: str) -> ConfigValue | None:
        """The value, None when it is not set and has no default."""

    def get_int(self, key: str) -> int:
        return self._expect(int, key)

    def get_bool(self, key: str) -> bool:
        return self._expect(bool, key)

    def get_str(self, key: str) -> str:
        return self._expect(str, key)

    def get_list(self, key: str) -> tuple[str, ...]:
        return self._expect(tuple, key)

    def _expect(self, kind: type[_T], key: str) -> _T:
        value = self.parsed(key)
        if type(value) is not kind:
            raise TypeError(f"{key} is {value!r}, not of type {kind.__name__}")
        return value


def split_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text.strip() else ()


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in {"true", "false"}:
        raise ValueError(text)
    return lowered == "true"


def _integer(text: str, bits: int) -> int:
    # int() alone would take "1_000" and digits of other scripts, which Kafka refuses.
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None:
        raise ValueError(text)
    value = int(text)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ValueError(text)
    return value


def _double(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_PARSERS: Final[Mapping[ConfigType, Callable[[str], ConfigValue]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: partial(_integer, bits=32),
    ConfigType.SHORT: partial(_integer, bits=16),
    ConfigType.LONG: partial(_integer, bits=64),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: split_list,
}
_TYPE_TEXT: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "text",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "items separated by commas",
}
