"""Lines of the audit log: what is in them, what never is, and how often an event is told."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.access import audit as audits
from ottla.broker.access.audit import MAX_VALUE, Audit, Line, Repeats, text_of
from ottla.broker.access.audited import ADMIN, MAX_CHANGES, audited
from ottla.broker.serving.apis import SERVED
from ottla.broker.serving.context import Peer, RequestContext
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from ottla.wire.schema.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.clocks import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALICE = Peer("10.0.0.7", "SASL_SSL", "User:alice", software="librdkafka 2.1")


@given(st.text(max_size=400), st.text(max_size=400))
def test_case_81_a_line_is_one_line_of_ascii_whatever_clients_call_themselves(
    name: str, client_id: str
) -> None:
    text = text_of(Line("deny", "denied", principal=name, client_id=client_id), 0, 1)
    assert text.isascii()
    assert "\n" not in text
    assert "\x1b" not in text
    read = json.loads(text)
    assert read.get("principal", "") == name[:MAX_VALUE]


def test_a_line_has_what_is_known_and_nothing_empty() -> None:
    text = text_of(Line("authenticate", "failed", host="10.0.0.7", reason="no such user"), 1500, 3)
    assert json.loads(text) == {
        "time": "1970-01-01T00:00:01.500+00:00",
        "event": "authenticate",
        "outcome": "failed",
        "host": "10.0.0.7",
        "reason": "no such user",
        "node": 3,
    }


def test_case_78_repeats_are_counted_and_told_once_a_minute() -> None:
    repeats, line = Repeats(seconds=60, most=2), Line("deny", "denied")
    assert repeats.is_first("a", line, 0.0)
    assert not any(repeats.is_first("a", line, 1.0) for _ in range(7))
    assert repeats.is_first("b", line, 2.0)
    assert not any(repeats.is_first(key, line, 3.0) for key in "cde")  # no room for them
    assert repeats.due(59.9) == []
    told = repeats.due(60.0)
    assert [each.repeats for each in told] == [7, 3]
    assert repeats.due(500.0) == []
    assert repeats.is_first("a", line, 600.0)


class Place:
    """An audit log in a file, and what is in it."""

    def __init__(self, file: Path, **options: Any) -> None:
        self.file = file
        self.clock = ManualClock()
        self.audit = Audit(self.clock, 1, file=file, **options)

    def lines(self) -> list[dict[str, Any]]:
        self.audit.close()
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "audit.log")


def test_case_83_the_file_is_its_owners_alone(place: Place) -> None:
    place.audit.authenticated(ALICE, "succeeded")
    assert [line["principal"] for line in place.lines()] == ["User:alice"]
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600


def test_case_78_a_refusal_is_told_at_once_and_then_counted(place: Place) -> None:
    produce = RequestContext(ALICE, 0, 9, "cli")
    for _ in range(5):
        place.audit.denied(produce, Operation.WRITE, Resource.TOPIC, "orders")
    place.audit.denied(produce, Operation.READ, Resource.TOPIC, "orders")
    place.clock.advance(61_000)
    place.audit.sweep()
    found = [(line["operation"], line.get("repeats")) for line in place.lines()]
    assert found == [("write", None), ("read", None), ("write", 4)]


def test_strangers_cannot_fill_the_disk_with_failures(place: Place) -> None:
    for _ in range(1000):
        place.audit.not_authenticated(ALICE, "wrong password")
    place.clock.advance(61_000)
    place.audit.sweep()
    found = place.lines()
    assert [line.get("repeats") for line in found] == [None, 999]
    assert "principal" not in found[0]  # nobody knows who it was


def test_failures_are_told_and_counted_by_the_user_that_was_tried(place: Place) -> None:
    for user in ("alice", "bob", "alice", "x" * 1000, "x" * 1000):
        place.audit.not_authenticated(ALICE, "wrong password", user)
    place.clock.advance(61_000)
    place.audit.sweep()
    long = "x" * MAX_VALUE
    assert [(line["user"], line.get("repeats")) for line in place.lines()] == [
        ("alice", None),
        ("bob", None),
        (long, None),
        ("alice", 1),
        (long, 1),
    ]


def test_case_79_a_disk_that_fails_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    missing = Place(tmp_path / "missing" / "audit.log")
    for _ in range(3):
        missing.audit.authenticated(ALICE, "succeeded")
    missing.audit.close()
    assert missing.audit.dropped == 3


def test_case_79_a_slow_disk_fills_the_queue_and_then_lines_are_dropped(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "MAX_WAITING", 3)
    monkeypatch.setattr(Audit, "_write", lambda _: None)  # a writer that does not come to it
    for _ in range(5):
        place.audit.authenticated(ALICE, "succeeded")
    assert place.audit.dropped == 2


def test_a_file_that_was_renamed_is_followed_by_a_new_one(place: Place, tmp_path: Path) -> None:
    place.audit.authenticated(ALICE, "succeeded")
    while not place.file.exists() or not place.file.stat().st_size:
        time.sleep(0.001)  # the thread is about to write it
    place.file.rename(tmp_path / "old")
    place.audit.reopen()
    place.audit.authenticated(ALICE, "expired")
    assert [line["outcome"] for line in place.lines()] == ["expired"]


# -- requests that change the cluster --------------------------------------------------------------


def told(place: Place, api_key: int, request: object, response: object) -> list[dict[str, Any]]:
    def handler(_: RequestContext, __: object) -> object:
        return response

    context = RequestContext(ALICE, api_key, 1, "cli")
    audited(handler, api_key, place.audit)(context, request)
    return place.lines()


def test_case_80_settings_are_told_by_name_never_by_value(place: Place) -> None:
    request = IncrementalAlterConfigsRequest(
        [AlterConfigsResource(2, "orders", [AlterableConfig("retention.ms", 0, "canary-8812")])]
    )
    response = IncrementalAlterConfigsResponse(
        0, [AlterConfigsResourceResponse(0, None, 2, "orders")]
    )
    (line,) = told(place, 44, request, response)
    assert line["resource"] == "topic:orders configs retention.ms"
    assert (line["event"], line["api"], line["outcome"]) == (
        "admin",
        "incremental_alter_configs",
        "done",
    )
    assert "canary" not in place.file.read_text()


def test_case_80_a_user_is_told_and_nothing_of_its_password(place: Place) -> None:
    upsertion = ScramCredentialUpsertion("bob", 2, 8192, b"canary-salt", b"canary-password")
    request = AlterUserScramCredentialsRequest([], [upsertion])
    response = AlterUserScramCredentialsResponse(0, [AlterUserScramCredentialsResult("bob", 31)])
    (line,) = told(place, 51, request, response)
    assert (line["resource"], line["outcome"]) == ("user:bob", "CLUSTER_AUTHORIZATION_FAILED")
    assert "canary" not in place.file.read_text()


def test_a_request_of_thousands_is_told_in_so_many_lines(place: Place) -> None:
    results = [CreatableTopicResult(f"t{number}") for number in range(MAX_CHANGES + 7)]
    lines = told(place, 19, CreateTopicsRequest(), CreateTopicsResponse(0, results))
    assert len(lines) == MAX_CHANGES + 1
    assert lines[-1]["resource"] == "7 further ones"


def test_a_request_that_only_asks_whether_it_would_work_is_not_told(place: Place) -> None:
    request = CreateTopicsRequest(validate_only=True)
    response = CreateTopicsResponse(0, [CreatableTopicResult("t")])
    place.audit.authenticated(ALICE, "succeeded")
    assert [line["event"] for line in told(place, 19, request, response)] == ["authenticate"]


def test_a_handler_that_waits_is_told_when_it_is_done(place: Place) -> None:
    async def handler(_: RequestContext, __: object) -> object:
        return CreateTopicsResponse(0, [CreatableTopicResult("t")])

    async def run() -> object:
        handle: Callable[..., Any] = audited(handler, 19, place.audit)
        return await handle(RequestContext(ALICE, 19, 1, None), CreateTopicsRequest())

    assert isinstance(asyncio.run(run()), CreateTopicsResponse)
    assert [line["resource"] for line in place.lines()] == ["topic:t"]


def test_what_changes_nothing_is_told_only_where_all_is(tmp_path: Path) -> None:
    def handler(_: RequestContext, __: object) -> object:
        return ()

    some = Audit(ManualClock(), 1, file=tmp_path / "some")
    assert audited(handler, 3, some) is handler
    everything = Place(tmp_path / "all", allowed="all")
    (line,) = told(everything, 3, (), ())
    assert (line["event"], line["api"]) == ("allow", "metadata")


def test_every_api_that_changes_the_cluster_for_others_is_in_the_table() -> None:
    words = ("create", "delete", "alter", "elect", "unregister")
    named = {
        key
        for key, served in SERVED.items()
        if any(word in served.handler for word in words) and "share_group_state" not in str(served)
    }
    assert named - ADMIN.keys() <= {85, 86, 87}, "these are between nodes"
