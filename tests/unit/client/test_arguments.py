"""Settings of clients: what cannot be is an error of ours that names the argument."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ottla
from ottla import sync
from ottla.client import arguments
from ottla.errors import BadArgument, ClientError, WrongType
from tests.support.junk import parameters, values
from tests.support.sizes import examples

if TYPE_CHECKING:
    from collections.abc import Callable

NEEDS: dict[Any, dict[str, Any]] = {
    ottla.Admin: {},
    ottla.Consumer: {"group": "g"},
    ottla.Producer: {},
    ottla.Reader: {"topic": "t"},
    ottla.ShareConsumer: {"group": "g"},
    ottla.ShareWorker: {"fn": print, "group": "g", "topics": ["t"]},
    sync.Admin: {},
    sync.Consumer: {"group": "g"},
    sync.Producer: {},
    sync.Reader: {"topic": "t"},
    sync.ShareConsumer: {"group": "g"},
}


@given(data=st.data())
@settings(max_examples=examples(600))
def test_whatever_is_given_to_a_constructor(data: st.DataObject) -> None:
    made: Callable[..., Any] = data.draw(st.sampled_from(list(NEEDS)))
    parameter = data.draw(st.sampled_from(parameters(made)))
    junk = data.draw(values)
    chosen = {"bootstrap": "127.0.0.1:1", **NEEDS[made], parameter: junk}

    async def make() -> None:
        made(**chosen)

    # It may be what is wanted. If not, it is refused in a way that users can handle.
    with suppress(ClientError):
        if made.__module__.startswith("ottla.sync"):
            made(**chosen)
        else:
            asyncio.run(make())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ottla.Reader("b", ["t"]), r"topic: expected the name of one topic \(str\), got"),  # type: ignore[arg-type]
        (lambda: ottla.Reader(b"b", "t"), 'bootstrap: expected "HOST:PORT,..." or a list'),  # type: ignore[arg-type]
        (
            lambda: ottla.Producer("b", compression_type="brotli"),
            "compression_type: expected one of",
        ),
        (lambda: ottla.Producer("b", security="SSL"), "security: expected a Security, got 'SSL'"),  # type: ignore[arg-type]
        (lambda: ottla.ShareConsumer("b", group="g", topics="t"), r"such as \['t'\], got 't'"),
        (lambda: ottla.Admin("b", api_timeout="1"), "api_timeout: expected a number of seconds"),  # type: ignore[arg-type]
        (
            lambda: ottla.Consumer("b", group="g", pattern="orders-("),
            r"pattern: 'orders-\(' is no regular expression in RE2 syntax: missing \): .*; put",
        ),
        (lambda: ottla.Consumer("b", group="g", pattern="(?=a)"), "use no lookarounds"),
        (
            lambda: ottla.Consumer("b", group="g", topics=["t"], assignor="nosuch"),
            "assignor: expected one of uniform, range, got 'nosuch'",
        ),
        (
            lambda: ottla.Consumer("b", group="g", topics=["t"], assignor="roundrobin"),
            "assignor: 'roundrobin' needs protocol=\"classic\"",
        ),
        (lambda: ottla.ShareWorker(None, "b", group="g", topics=["t"]), "fn: expected a function"),  # type: ignore[arg-type]
    ],
)
async def test_what_is_said(make: Callable[[], object], words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        make()


@pytest.mark.parametrize("made", NEEDS, ids=lambda made: f"{made.__module__}.{made.__name__}")
async def test_a_mapping_is_no_bootstrap(made: Callable[..., Any]) -> None:
    settings_of_others = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hush"}
    with pytest.raises(WrongType, match="bootstrap: expected the address itself, such as") as said:
        made(bootstrap=settings_of_others, **NEEDS[made])
    assert "hush" not in str(said.value)


async def test_patterns_and_assignors_that_will_do() -> None:
    for assignor in (None, "uniform", "range"):
        ottla.Consumer("b", group="g", pattern=r"orders\..*|[a-c]+", assignor=assignor)
    for assignor in ("range", "roundrobin", "cooperative-sticky"):
        ottla.Consumer("b", group="g", topics=["t"], protocol="classic", assignor=assignor)


def test_a_wrong_type_is_what_python_calls_it() -> None:
    with pytest.raises(TypeError):
        arguments.whole("n", "1")
    with pytest.raises(ValueError, match="n: expected 1 or more, got 0"):
        arguments.whole("n", 0, 1)
    assert issubclass(WrongType, TypeError)


def test_integers_of_other_libraries_will_do() -> None:
    np = pytest.importorskip("numpy")
    assert type(arguments.whole("n", np.int64(7))) is int
    assert arguments.offsets("o", {("t", np.int32(1)): np.int64(5)}) == {("t", 1): 5}


def test_settings_are_strings_on_the_wire() -> None:
    given = {"retention.ms": 60_000, "remote.storage.enable": True, "cleanup.policy": "compact"}
    assert arguments.settings("configs", given, nullable=False) == {
        "retention.ms": "60000",
        "remote.storage.enable": "true",
        "cleanup.policy": "compact",
    }
    assert arguments.settings("configs", {"x": ""}, nullable=False) == {"x": ""}
    empty: list[object] = [b"", [], None, {}]
    for wrong in empty:
        with pytest.raises(WrongType, match=r"configs\['x'\]: expected a string or number"):
            arguments.settings("configs", {"x": wrong}, nullable=False)


@pytest.mark.parametrize("seconds", [math.inf, 3e6])
@pytest.mark.parametrize("name", ["max_poll_interval", "session_timeout", "max_wait"])
def test_times_that_a_request_cannot_carry_are_refused(name: str, seconds: float) -> None:
    options: Any = {"group": "g", "topics": ["t"], "protocol": "classic", name: seconds}
    with pytest.raises(BadArgument, match=f"{name}: expected at most"):
        ottla.Consumer("127.0.0.1:9", **options)


def test_a_source_of_randomness_is_a_function() -> None:
    nothing: Any = None
    with pytest.raises(WrongType, match="random: expected a function"):
        ottla.Producer("127.0.0.1:9", random=nothing)
