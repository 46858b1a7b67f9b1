"""SCRAM credentials (50, 51) and client quotas (48, 49) on the wire, and where they are kept.

Cases 43, 44, 47, 73, 83 and 114 of the specification of security, with a raw client.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla.metadata.changes.security import SetScramCredential
from ottla.metadata.security.users import ScramCredential
from ottla.metadata.stores.sqlite import SqliteMetadataStore
from ottla.wire.schema.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.schema.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.wire.schema.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.support.raw_client import RawClient, batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SALTED = bytes(range(32))
GOOD = ScramCredentialUpsertion("alice", 1, 4096, b"s" * 16, SALTED)
PATIENCE = 20.0


@pytest.fixture
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker() as made:
        yield made


@pytest.fixture
def raw(broker: ottla.EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as client:
        yield client


def altered(
    raw: RawClient,
    *upsertions: ScramCredentialUpsertion,
    deletions: tuple[tuple[str, int], ...] = (),
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion(*one) for one in deletions], upsertions
    )
    answer = raw.ask("alter_user_scram_credentials", 0, request)
    return {result.user: result.error_code for result in answer.results}


def described(raw: RawClient, *names: str) -> dict[str, Any]:
    users = [UserName(name) for name in names] or None
    answer = raw.ask(
        "describe_user_scram_credentials", 0, DescribeUserScramCredentialsRequest(users)
    )
    assert answer.error_code == 0
    return {
        result.user: result.error_code or [tuple(info) for info in result.credential_infos]
        for result in answer.results
    }


def test_43_users_are_made_changed_described_and_deleted(raw: RawClient) -> None:
    other = GOOD._replace(mechanism=2, iterations=8192, salted_password=SALTED * 2)
    assert altered(raw, GOOD, other, GOOD._replace(name="bob")) == {"alice": 0, "bob": 0}
    assert described(raw) == {"alice": [(1, 4096), (2, 8192)], "bob": [(1, 4096)]}
    assert altered(raw, GOOD._replace(iterations=5000)) == {"alice": 0}
    assert described(raw, "alice") == {"alice": [(1, 5000), (2, 8192)]}
    assert altered(raw, deletions=(("alice", 1), ("bob", 1))) == {"alice": 0, "bob": 0}
    assert described(raw) == {"alice": [(2, 8192)]}


def test_43_what_is_wrong_is_told_of_each_user(raw: RawClient) -> None:
    assert altered(raw, GOOD) == {"alice": 0}
    assert described(raw, "alice", "alice", "nobody") == {"alice": 92, "nobody": 91}
    assert altered(
        raw,
        GOOD._replace(iterations=9000),
        GOOD._replace(iterations=9001),
        GOOD._replace(name="bob"),
        GOOD._replace(name="carol", mechanism=3),
        GOOD._replace(name="carol"),
        deletions=(("dora", 1), ("erin", 0)),
    ) == {"dora": 91, "erin": 33, "alice": 92, "bob": 0, "carol": 33}
    assert described(raw) == {"alice": [(1, 4096)], "bob": [(1, 4096)]}
    assert altered(raw, GOOD, deletions=(("alice", 1),)) == {"alice": 92}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "x" * 256},
        {"name": "a\nb"},
        {"name": "__node"},
        {"iterations": 4095},
        {"iterations": 16385},
        {"salt": b"short"},
        {"salted_password": SALTED[:-1]},
        {"salted_password": SALTED * 2},
    ],
)
def test_44_names_and_credentials_that_cannot_be(raw: RawClient, wrong: dict[str, Any]) -> None:
    bad = GOOD._replace(**wrong)
    assert altered(raw, bad) == {bad.name: 93}
    assert described(raw) == {}


def test_44_names_with_odd_characters(raw: RawClient) -> None:
    names = ["a,b=c", "x" * 255, "b\u00f6b", "with blank"]
    assert altered(raw, *(GOOD._replace(name=name) for name in names)) == dict.fromkeys(names, 0)
    assert set(described(raw)) == set(names)


def test_the_salted_password_is_kept_nowhere(tmp_path: Path) -> None:
    salted = os.urandom(32)
    with ottla.EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as raw:
        assert altered(raw, GOOD._replace(salted_password=salted)) == {"alice": 0}
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        found = [path for path in files if salted in path.read_bytes()]
        import base64

        found += [path for path in files if base64.b64encode(salted) in path.read_bytes()]
    assert files
    assert not found


def quotas(raw: RawClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict)
    return raw.ask("describe_client_quotas", 1, request)


def entities(answer: Any) -> dict[Any, dict[str, float]]:
    assert answer.error_code == 0, answer
    return {
        tuple(tuple(part) for part in entry.entity): {v.key: v.value for v in entry.values}
        for entry in answer.entries
    }


def entry(entity: list[tuple[str, str | None]], **values: float | None) -> RequestEntryData:
    return RequestEntryData(
        [RequestEntityData(*part) for part in entity],
        [OpData(key, value or 0.0, value is None) for key, value in values.items()],
    )


def set_quotas(
    raw: RawClient, *entries: RequestEntryData, validate_only: bool = False
) -> list[int]:
    answer = raw.ask("alter_client_quotas", 1, AlterClientQuotasRequest(entries, validate_only))
    assert [
        [(part.entity_type, part.entity_name) for part in row.entity] for row in answer.entries
    ] == [[(part.entity_type, part.entity_name) for part in one.entity] for one in entries]
    return [row.error_code for row in answer.entries]


def test_73_quotas_are_set_described_and_removed(raw: RawClient) -> None:
    made = [
        entry([("user", "alice")], producer_byte_rate=1e6, request_percentage=50.5),
        entry([("client-id", "app"), ("user", None)], consumer_byte_rate=2e6),
        entry([("ip", "::ffff:10.0.0.1")], connection_creation_rate=5.0),
    ]
    assert set_quotas(raw, *made, validate_only=True) == [0, 0, 0]
    assert entities(quotas(raw)) == {}
    assert set_quotas(raw, *made) == [0, 0, 0]
    alice: dict[Any, Any] = {
        (("user", "alice"),): {"producer_byte_rate": 1e6, "request_percentage": 50.5}
    }
    default: dict[Any, Any] = {(("client-id", "app"), ("user", None)): {"consumer_byte_rate": 2e6}}
    address: dict[Any, Any] = {(("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0}}
    assert entities(quotas(raw)) == alice | default | address
    assert entities(quotas(raw, ("user", 0, "alice"))) == alice
    assert entities(quotas(raw, ("user", 1, None))) == default
    assert entities(quotas(raw, ("user", 2, None))) == alice | default
    assert entities(quotas(raw, ("user", 2, None), strict=True)) == alice
    assert set_quotas(raw, entry([("user", "alice")], request_percentage=None)) == [0]
    assert entities(quotas(raw, ("user", 0, "alice"))) == {
        (("user", "alice"),): {"producer_byte_rate": 1e6}
    }
    assert set_quotas(raw, entry([("user", "alice")], producer_byte_rate=None)) == [0]
    assert entities(quotas(raw, ("user", 0, "alice"))) == {}


def test_73_every_wrong_form_is_42_and_the_others_are_done(raw: RawClient) -> None:
    wrong = [
        entry([("group", "g")], producer_byte_rate=1.0),
        entry([("user", "a"), ("user", "b")], producer_byte_rate=1.0),
        entry([("ip", "10.0.0.1"), ("user", "a")], connection_creation_rate=1.0),
        entry([("ip", "no address")], connection_creation_rate=1.0),
        entry([], producer_byte_rate=1.0),
        entry([("user", "a")], producer_byte_rate=-1.0),
        entry([("user", "a")], producer_byte_rate=float("nan")),
        entry([("user", "a")], request_percentage=float("inf")),
        entry([("user", "a")], unknown_key=1.0),
        entry([("user", "a")], connection_creation_rate=1.0),
        entry([("user", "twice")], producer_byte_rate=1.0),
        entry([("user", "twice")], consumer_byte_rate=1.0),
    ]
    right = entry([("user", "right")], producer_byte_rate=1.0)
    assert set_quotas(raw, *wrong, right) == [42] * len(wrong) + [0]
    assert set(entities(quotas(raw))) == {(("user", "right"),)}


@pytest.mark.parametrize(
    "components",
    [
        [("group", 2, None)],
        [("user", 3, None)],
        [("user", 0, None)],
        [("user", 1, "a")],
        [("user", 2, None), ("user", 2, None)],
        [("ip", 2, None), ("user", 2, None)],
    ],
)
def test_73_a_filter_that_cannot_be_is_42(
    raw: RawClient, components: list[tuple[str, int, str | None]]
) -> None:
    answer = quotas(raw, *components)
    assert (answer.error_code, answer.entries) == (42, None)


def test_72_users_and_quotas_survive_a_restart(tmp_path: Path) -> None:
    with ottla.EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as raw:
        assert altered(raw, GOOD) == {"alice": 0}
        assert set_quotas(raw, entry([("user", "alice")], producer_byte_rate=1.0)) == [0]
    with ottla.EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as raw:
        assert described(raw) == {"alice": [(1, 4096)]}
        assert set(entities(quotas(raw))) == {(("user", "alice"),)}


def test_47_a_running_broker_sees_a_user_of_the_command_line(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}
    with ottla.EmbeddedBroker(tmp_path, config=settings) as broker:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        credential = ScramCredential(b"s" * 16, 4096, SALTED, SALTED)
        store.propose(SetScramCredential("late", "SCRAM-SHA-256", credential))
        store.close()
        with RawClient(broker.bootstrap) as raw:
            deadline = time.monotonic() + PATIENCE
            while described(raw) == {}:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert described(raw) == {"late": [(1, 4096)]}


def test_83_files_are_the_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    code = (
        "import os, sys, ottla; os.umask(0)\n"
        "with ottla.EmbeddedBroker(sys.argv[1]) as broker:\n"
        "    broker.create_topic('t')\n"
        "    print(broker.bootstrap, flush=True); sys.stdin.read()"
    )
    data = tmp_path / "data"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code, str(data)], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        with RawClient(process.stdout.readline().strip()) as raw:
            assert raw.produce("t", batch(b"v")).error_code == 0
        process.communicate("")
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    modes = {
        path.relative_to(data).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in data.rglob("*")
    }
    assert {name for name, mode in modes.items() if mode & 0o077} == set()
    assert "metadata.db" in modes
    assert any(name.endswith(".log") for name in modes)


def test_114_the_release_before_would_refuse_the_store(tmp_path: Path) -> None:
    """It knows version 1 alone, and looks at the number before anything else."""
    with ottla.EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as raw:
        assert altered(raw, GOOD) == {"alice": 0}
    with closing(sqlite3.connect(tmp_path / "metadata.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
