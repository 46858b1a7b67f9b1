"""Every error of the package: below one root, found in one place, and picklable."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla import errors
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientError, raise_failures
from ottla.offsets.types import CommitInfo, OffsetKey

# Rooms whose exceptions a user meets.
PUBLIC = ("ottla.client.", "ottla.offsets.", "ottla.streams.", "ottla.sync.", "ottla.spark.errors")
# Raised and caught inside of a room.
INNER = {
    "FetchFailed",
    "LostRace",
    "Malformed",
    "ThreadEnded",
    "Unfinished",
    "UnexpectedAnswer",
}
KEY = OffsetKey("s", "c", 0)
VALUES: dict[str, Any] = {"int": 7, "float": 1.5, "TopicPartition": TopicPartition("t", 0)}
SPECIAL: dict[str, tuple[Any, ...]] = {
    "DataLost": (TopicPartition("t", 0), 3),
    "KafkaError": (3, "look", "why"),
    "OffsetRegression": (KEY, 5, 3),
    "OffsetConflict": (KEY, 5, 3),
    "StaleOffset": (KEY, "a", "b"),
    "OffsetCorrupt": (Path("x"), "why"),
    "OffsetLockTimeout": (Path("x"), 1.5),
}


@cache
def _all_errors() -> list[type[Exception]]:
    found: dict[str, type[Exception]] = {}
    for module in pkgutil.walk_packages(ottla.__path__, "ottla."):
        if module.name.endswith("__main__"):
            continue
        for one in vars(importlib.import_module(module.name)).values():
            ours = inspect.isclass(one) and one.__module__.startswith("ottla.")
            if ours and issubclass(one, Exception):
                found[f"{one.__module__}.{one.__qualname__}"] = one
    return list(found.values())


def _example(kind: type[Exception]) -> Exception:
    """An instance, made from the types that its constructor asks for."""
    if issubclass(kind, ExceptionGroup):
        return kind("several", [ValueError("one"), KeyError("two")])
    for parent in kind.__mro__:
        if parent.__name__ in SPECIAL:
            return kind(*SPECIAL[parent.__name__])
        if "__init__" in vars(parent):
            break
    try:
        parameters = inspect.signature(kind).parameters.values()
    except ValueError:  # no __init__ of its own
        return kind("a text")
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in parameters:
        kinds = str(parameter.annotation).split(" | ")
        value = next((VALUES[one] for one in kinds if one in VALUES), "a text")
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        elif parameter.kind is not parameter.VAR_KEYWORD:
            arguments.append(value)
    return kind(*arguments, **named)


def _facts(error: Exception) -> tuple[Any, ...]:
    return str(error), repr(error.args), repr(vars(error))


def test_every_error_survives_pickling() -> None:
    broken = {}
    for kind in _all_errors():
        error = _example(kind)
        try:
            back = pickle.loads(pickle.dumps(error))  # our own
        except Exception as problem:  # noqa: BLE001  # whatever pickle says
            broken[kind] = repr(problem)
            continue
        if type(back) is not kind or _facts(back) != _facts(error):
            broken[kind] = repr(_facts(back))
    assert broken == {}


def test_every_error_of_a_public_room_is_offered_and_has_the_root() -> None:
    for kind in _all_errors():
        if kind.__module__.startswith(PUBLIC) and kind.__name__ not in INNER:
            assert issubclass(kind, errors.OttlaError), kind
            assert getattr(errors, kind.__name__) is kind


def test_all_names_are_there() -> None:
    assert dir(errors) == sorted(errors.__all__)
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.OttlaError), name
    assert errors.ClientError is ClientError
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        errors.Nothing  # noqa: B018  # on purpose


def test_what_was_committed_survives_with_the_failures_of_hooks() -> None:
    info = CommitInfo(KEY, 3, None, datetime.now(UTC), changed=True)
    error = errors.PostCommitHookError.of([ValueError("hook")], [info])
    back = pickle.loads(pickle.dumps(error))  # our own
    assert back.infos == (info,)


def test_a_partial_failure_carries_its_parts() -> None:
    gone = errors.UnknownTopic(3, "delete topic 'b'")
    busy = errors.KafkaError(68, "delete topic 'c'")
    outcomes = {"a": None, "b": gone, "c": busy}
    with pytest.raises(
        errors.PartialFailure, match="delete topics: 2 of 3 failed: delete"
    ) as raised:
        raise_failures("delete topics", outcomes)
    assert raised.value.failures == {"b": gone, "c": busy}
    back = pickle.loads(pickle.dumps(raised.value))  # our own
    assert list(back.failures) == ["b", "c"]
    of_topics, rest = raised.value.split(errors.UnknownTopic)  # as `except*` does
    assert isinstance(of_topics, errors.PartialFailure)
    assert isinstance(rest, errors.PartialFailure)
    assert (of_topics.failures, rest.failures) == ({"b": gone}, {"c": busy})


def test_what_fails_as_a_whole_is_no_partial_failure() -> None:
    with pytest.raises(errors.UnknownTopic):
        raise_failures(
            "delete", {"a": errors.UnknownTopic(3, "a"), "b": errors.UnknownTopic(3, "b")}
        )
    raise_failures("delete", {"a": None})
