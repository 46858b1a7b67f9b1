"""The audit log of a broker: logins, failures and changes, each once, with nothing secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.security.scram import SHA_256, salted_password
from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.doors import USERS, bootstrap, guarded_broker
from tests.support.raw_client import RawClient
from tests.support.sasl_client import log_in

if TYPE_CHECKING:
    from pathlib import Path

SASL = "SASL_PLAINTEXT"


def test_case_78_and_80_who_logged_in_who_failed_and_who_made_a_topic(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    config = {
        "listeners": f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ottla.audit.file": str(file),
    }
    with guarded_broker(config) as broker:
        with RawClient(bootstrap(broker, SASL)) as raw:
            log_in(raw, "SCRAM-SHA-256", "alice", "canary-wrong")
        with RawClient(bootstrap(broker, SASL)) as raw:
            log_in(raw, "SCRAM-SHA-256", "alice", USERS["alice"])
            made = CreateTopicsRequest([CreatableTopic("orders", 1, 1)], 5000)
            raw.ask("create_topics", 5, made)
    text = file.read_text()
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    logins = [line for line in lines if line["event"] == "authenticate"]
    assert [line["outcome"] for line in logins] == ["failed", "succeeded"]
    assert (logins[0]["user"], "principal" in logins[0]) == ("alice", False)
    assert logins[1]["principal"] == "User:alice"
    assert {line["host"] for line in logins} == {"127.0.0.1"}
    (change,) = (line for line in lines if line.get("resource") == "topic:orders")
    assert (change["principal"], change["api"]) == ("User:alice", "create_topics")
    assert (change["outcome"], change["listener"]) == ("done", SASL)
    assert "canary" not in text
    assert not any(password in text for password in USERS.values())


@pytest.mark.parametrize("deletes", [False, True])
def test_who_changes_itself_gets_an_answer_and_a_line(tmp_path: Path, deletes: bool) -> None:
    """Fault: the connection was closed before the answer, and the request was not told."""
    file = tmp_path / "audit.log"
    config = {
        "listeners": f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ottla.audit.file": str(file),
    }
    salt = b"s" * 24
    salted = salted_password(SHA_256, "another", salt, 4096)
    request = (
        AlterUserScramCredentialsRequest([ScramCredentialDeletion("alice", 1)])
        if deletes
        else AlterUserScramCredentialsRequest(
            (), [ScramCredentialUpsertion("alice", 1, 4096, salt, salted)]
        )
    )
    with guarded_broker(config) as broker:
        where = bootstrap(broker, SASL)
        with RawClient(where) as raw, RawClient(where) as other:
            for one in (raw, other):
                log_in(one, "SCRAM-SHA-256", "alice", USERS["alice"])
            (result,) = raw.ask("alter_user_scram_credentials", 0, request).results
            assert (result.user, result.error_code) == ("alice", 0)
            assert raw.closed()
            assert other.closed()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    (change,) = (line for line in lines if line.get("resource") == "user:alice")
    assert (change["principal"], change["outcome"]) == ("User:alice", "done")


def test_case_78_a_refusal_names_user_operation_and_resource_once(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    config = {
        "listeners": f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "standard",
        "super.users": "User:ANONYMOUS",
        "ottla.audit.file": str(file),
    }
    with guarded_broker(config) as broker, RawClient(bootstrap(broker, SASL)) as raw:
        log_in(raw, "SCRAM-SHA-256", "alice", USERS["alice"])
        made = CreateTopicsRequest([CreatableTopic("orders", 1, 1)], 5000)
        for _ in range(3):
            raw.ask("create_topics", 5, made)
    lines: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    (denied,) = (line for line in lines if line["event"] == "deny")
    assert (denied["principal"], denied["operation"]) == ("User:alice", "create")
    assert (denied["resource"], denied["api"]) == ("topic:orders", "create_topics")
    tried = [line["outcome"] for line in lines if line.get("resource") == "topic:orders"]
    assert tried.count("TOPIC_AUTHORIZATION_FAILED") == 3
