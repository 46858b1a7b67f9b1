"""Quotas: precedence, windows and bounds (cases 70, 76 and 77 of the security specification)."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.access import quotas as quotas_module
from ottla.broker.access.quotas import (
    IDLE_SECONDS,
    MAX_CLIENTS,
    MAX_THROTTLE_SECONDS,
    Index,
    Meter,
    Quotas,
    Ring,
    Tokens,
    Windows,
)
from ottla.metadata.security.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuota,
    EntityPart,
    checked_entity,
    entity_key,
)

KEY = PRODUCER_BYTE_RATE
ABSENT = object()


def image(*given: tuple[dict[str, str | None], dict[str, float]]) -> dict[str, ClientQuota]:
    found = {}
    for names, values in given:
        entity = checked_entity([EntityPart(kind, name) for kind, name in names.items()])
        found[entity_key(entity)] = ClientQuota(entity, values)
    return found


# The eight levels for user alice with client id app, strongest first.
LEVELS: list[dict[str, str | None]] = [
    {USER: "alice", CLIENT_ID: "app"},
    {USER: "alice", CLIENT_ID: None},
    {USER: "alice"},
    {USER: None, CLIENT_ID: "app"},
    {USER: None, CLIENT_ID: None},
    {USER: None},
    {CLIENT_ID: "app"},
    {CLIENT_ID: None},
]
COUNTED = [
    ("alice", "app"),
    ("alice", "app"),
    ("alice", None),
    ("alice", "app"),
    ("alice", "app"),
    ("alice", None),
    (None, "app"),
    (None, "app"),
]
STRANGERS: list[dict[str, str | None]] = [
    {USER: "bob"},
    {CLIENT_ID: "other"},
    {USER: "bob", CLIENT_ID: "app"},
    {USER: "alice", CLIENT_ID: "other"},
    {USER: "bob", CLIENT_ID: None},
    {USER: None, CLIENT_ID: "other"},
]


@pytest.mark.parametrize("subset", range(1, 256))
def test_70_the_first_level_that_has_the_key_wins(subset: int) -> None:
    """All subsets of the eight levels, so each pair, too."""
    there = [level for level in range(8) if subset >> level & 1]
    given = [(LEVELS[level], {KEY: float(level + 1)}) for level in there]
    given += [(stranger, {KEY: 99.0}) for stranger in STRANGERS]
    found = Index(image(*given)).find(KEY, "alice", "app")
    assert found is not None
    assert found.limit == there[0] + 1
    assert found.counted == COUNTED[there[0]]


@pytest.mark.parametrize(("strong", "weak"), list(itertools.combinations(range(8), 2)))
def test_70_each_key_is_looked_up_by_itself(strong: int, weak: int) -> None:
    index = Index(image((LEVELS[strong], {CONSUMER_BYTE_RATE: 1.0}), (LEVELS[weak], {KEY: 2.0})))
    assert index.find(KEY, "alice", "app") == (2.0, COUNTED[weak])
    assert index.find(CONSUMER_BYTE_RATE, "alice", "app") == (1.0, COUNTED[strong])
    assert index.find(REQUEST_PERCENTAGE, "alice", "app") is None


def test_70_nobody_elses_quota_counts() -> None:
    index = Index(image(*((stranger, {KEY: 99.0}) for stranger in STRANGERS)))
    assert index.find(KEY, "alice", "app") is None


names = st.sampled_from(["alice", "bob", None])


@given(
    entities=st.lists(
        st.tuples(
            st.one_of(st.just(ABSENT), names),
            st.one_of(st.just(ABSENT), names),
            st.integers(1, 1000),
        ).filter(lambda one: one[0] is not ABSENT or one[1] is not ABSENT),
        max_size=10,
    ),
    user=st.sampled_from(["alice", "bob", "carol"]),
    client=st.sampled_from(["alice", "bob", "carol"]),
)
def test_70_any_set_against_a_model(
    entities: list[tuple[object, object, int]], user: str, client: str
) -> None:
    table: dict[tuple[object, object], float] = {}
    given = []
    for one, other, limit in entities:
        table[one, other] = float(limit)
        parts = {
            kind: name for kind, name in ((USER, one), (CLIENT_ID, other)) if name is not ABSENT
        }
        given.append((parts, {KEY: float(limit)}))
    found = Index(image(*given)).find(KEY, user, client)  # type: ignore[arg-type]
    order = [
        *((user, client), (user, None), (user, ABSENT)),
        *((None, client), (None, None), (None, ABSENT)),
        *((ABSENT, client), (ABSENT, None)),
    ]
    expected = next((table[pair] for pair in order if pair in table), None)
    assert (found.limit if found else None) == expected


def test_70_a_users_clients_share_its_quota_and_defaults_count_apart() -> None:
    quotas = Quotas(Windows(), Windows())
    quotas.adopt(image(({USER: "alice"}, {KEY: 10.0}), ({USER: None}, {KEY: 10.0})))
    alice = [quotas.client("alice", name, 0.0).produce for name in ("a", "b")]
    assert alice[0] is alice[1] is not None
    bob, carol = (quotas.client(name, "a", 0.0).produce for name in ("bob", "carol"))
    assert len({id(one) for one in (alice[0], bob, carol)}) == 3
    quotas.adopt(image(({CLIENT_ID: None}, {KEY: 10.0})))
    assert quotas.client("alice", "a", 0.0).produce is quotas.client("bob", "a", 0.0).produce
    assert quotas.client("bob", "a", 0.0).produce is not quotas.client("bob", "b", 0.0).produce


# -- windows --------------------------------------------------------------------------------------


class Event(NamedTuple):
    after: float
    amount: int


events = st.lists(
    st.builds(
        Event,
        st.one_of(st.just(0.0), st.floats(0, 3), st.floats(0, 40), st.integers(0, 15).map(float)),
        st.integers(0, 10**12),
    ),
    max_size=60,
)


@given(
    events=events,
    windows=st.builds(Windows, st.integers(1, 12), st.integers(1, 5)),
    began=st.floats(0, 1e6),
)
def test_76_the_ring_against_a_list_of_events(
    events: list[Event], windows: Windows, began: float
) -> None:
    ring = Ring(windows)
    seen: list[tuple[float, int]] = []
    now = began
    for event in events:
        now += event.after
        ring.add(event.amount, now)
        seen.append((now, event.amount))
        current = now // windows.seconds
        alive = [
            amount for when, amount in seen if when // windows.seconds > current - windows.count
        ]
        assert ring.total == sum(alive)
        low = (windows.count - 1) * windows.seconds
        assert low - 1e-6 <= ring.span(now) <= low + windows.seconds


@given(events=events, limit=st.floats(1, 1e9))
def test_76_throttles_against_the_formula(events: list[Event], limit: float) -> None:
    windows = Windows()
    meter = Meter(windows, MAX_THROTTLE_SECONDS)
    meter.limit = limit
    seen: list[tuple[float, int]] = []
    now = 1000.0
    for event in events:
        now += event.after
        said = meter.record(event.amount, now)
        seen.append((now, event.amount))
        first = now // 1 - 10
        total = sum(amount for when, amount in seen if when // 1 >= first)
        span = now - first
        rate = total / span
        expected = (rate - limit) / limit * span if rate > limit else 0.0
        assert said == pytest.approx(min(expected, MAX_THROTTLE_SECONDS), abs=1e-6, rel=1e-9)


def test_76_a_client_that_waits_as_told_keeps_its_rate() -> None:
    meter = Meter(Windows(), MAX_THROTTLE_SECONDS)
    meter.limit = 1_000_000
    now, sent = 0.0, 0
    while now < 60:
        wait = meter.record(100_000, now)
        sent += 100_000
        now += max(wait, 0.001)
    # The first windows may be used at once.
    assert 60_000_000 <= sent <= 60_000_000 + 11_000_000


def test_76_a_reader_that_takes_what_there_is_room_for_keeps_its_rate() -> None:
    meter = Meter(Windows(), MAX_THROTTLE_SECONDS)
    meter.limit = 1_000_000
    now, taken, empty = 0.0, 0, 0
    while now < 60:
        room = meter.room(now)
        if room:
            assert room <= 10_000_000
            taken += room
            assert meter.record(room, now) == 0.0
            now += 0.001
        else:
            empty += 1
            assert meter.wait(now) > 0
            now += meter.wait(now)
    assert 50_000_000 <= taken <= 60_000_000 + 11_000_000
    assert empty < 200


@pytest.mark.parametrize("windows", [Windows(1, 1), Windows(2, 1), Windows(11, 5)])
@pytest.mark.parametrize("limit", [0.001, 1.0, 1e9])
def test_a_client_that_has_nothing_yet_gets_something(windows: Windows, limit: float) -> None:
    meter = Meter(windows, MAX_THROTTLE_SECONDS)
    meter.limit = limit
    for now in (0.0, 0.5, 0.999, 100.25):
        assert meter.room(now) >= 1
        assert meter.throttle(now) == 0.0


def test_waits_have_a_limit() -> None:
    quotas = Quotas(Windows(), Windows())
    quotas.adopt(image(({USER: "a"}, {KEY: 1.0, REQUEST_PERCENTAGE: 1.0})))
    client = quotas.client("a", "", 0.0)
    assert client.produce is not None
    assert client.request is not None
    assert client.produce.record(10**15, 0.0) == MAX_THROTTLE_SECONDS
    # 1 percent of ten seconds is 0.1 s; much more waits a window.
    assert client.request.record(100_000_000, 0.0) == pytest.approx(0, abs=1e-6)
    assert client.request.record(10**12, 0.0) == 1.0


def test_a_bucket_of_tokens_lets_debts_be_paid() -> None:
    tokens = Tokens(Windows(11, 1))
    tokens.limit = 10.0
    assert tokens.take(110, 0.0) == 0.0  # all of it
    assert tokens.take(5, 0.0) == 0.0  # not in debt yet
    assert tokens.take(1, 0.0) == pytest.approx(0.5)
    assert tokens.take(1, 0.5) == 0.0
    assert tokens.force(100, 0.5) == pytest.approx(10.1)
    assert tokens.take(1, 1000.0) == 0.0
    assert tokens.force(200, 1000.0) == pytest.approx((200 - 109) / 10)


def test_74_a_changed_quota_counts_at_once_and_keeps_what_was_counted() -> None:
    quotas = Quotas(Windows(), Windows())
    quotas.adopt(image(({USER: "a"}, {KEY: 10.0})))
    meter = quotas.client("a", "x", 0.0).produce
    assert meter is not None
    assert meter.record(1000, 0.0) > 0
    quotas.adopt(image(({USER: "a"}, {KEY: 1000.0})))
    again = quotas.client("a", "x", 0.1).produce
    assert again is meter
    assert again.throttle(0.1) == 0.0
    quotas.adopt(image(({USER: "a"}, {CONSUMER_BYTE_RATE: 10.0})))
    assert quotas.client("a", "x", 0.2).produce is None
    quotas.adopt({})
    assert not quotas.active
    assert len(quotas) == 0


def test_quotas_of_addresses_do_not_slow_requests() -> None:
    quotas = Quotas(Windows(), Windows())
    quotas.adopt(
        image(
            ({IP: "10.0.0.1"}, {CONNECTION_CREATION_RATE: 5.0}),
            ({IP: None}, {CONNECTION_CREATION_RATE: 7.0}),
        )
    )
    assert not quotas.active
    assert quotas.connection_rate("10.0.0.1") == 5.0
    assert quotas.connection_rate("10.0.0.2") == 7.0
    assert Quotas(Windows(), Windows()).connection_rate("10.0.0.2") is None


# -- bounds ---------------------------------------------------------------------------------------


def test_77_ten_thousand_users_under_a_default_are_cheap_and_forgotten() -> None:
    quotas = Quotas(Windows(), Windows())
    values = {
        PRODUCER_BYTE_RATE: 1e6,
        CONSUMER_BYTE_RATE: 1e6,
        REQUEST_PERCENTAGE: 50.0,
        CONTROLLER_MUTATION_RATE: 10.0,
    }
    quotas.adopt(image(({USER: None}, values)))
    tracemalloc.start()
    try:
        for number in range(10_000):
            client = quotas.client(f"user-{number}", "client", number / 1000)
            assert client.produce is not None
            assert client.fetch is not None
            client.produce.record(1000, number / 1000)
            client.fetch.record(1000, number / 1000)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used <= 20 * 1024 * 1024
    assert len(quotas) == 10_000
    quotas.client("one more", "client", IDLE_SECONDS - 1)
    assert len(quotas) == MAX_CLIENTS
    quotas.client("one more", "client", IDLE_SECONDS + 100)
    assert len(quotas) == 1
    del client  # the last one of the loop
    assert len(quotas._counted) == 1


def test_77_a_quota_in_use_is_not_lost_with_an_idle_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names of clients cannot be used to begin anew."""
    monkeypatch.setattr(quotas_module, "MAX_CLIENTS", 10)
    quotas = Quotas(Windows(), Windows())
    quotas.adopt(image(({USER: "a"}, {KEY: 10.0})))
    for number in range(100):
        meter = quotas.client("a", f"client-{number}", 1.0).produce
        assert meter is not None
        meter.record(10, 1.0)
    assert len(quotas) == 10
    assert meter is not None
    assert meter.throttle(1.0) == pytest.approx(100 - 10)
