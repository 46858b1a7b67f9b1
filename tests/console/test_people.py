"""Roles on a broker, and people who are users of the cluster."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from starlette.routing import BaseRoute, Mount, Route
from starlette.testclient import TestClient

from ottla.client.security import Security
from ottla.console.accounts import Cost, Hashed, Role, add_user
from ottla.console.serve import make_app
from ottla.console.settings import BadSetting, ClusterSettings, Settings, settled
from ottla.sync import Admin, Producer
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.secured import Secured
from tests.console.conftest import URL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long

OURS = {"origin": URL}
PASSWORDS = {"vera": "eins-geheim", "olaf": "zwei-geheim", "anna": "drei-geheim"}
ROLES = {"vera": Role.VIEWER, "olaf": Role.OPERATOR, "anna": Role.ADMIN}


def token(client: TestClient, path: str = "/login") -> str:
    found = re.search(r'name="token" value="(\w+)"', client.get(path).text)
    assert found is not None
    return found[1]


def log_in(client: TestClient, name: str, password: str | None = None) -> Any:
    given = PASSWORDS[name] if password is None else password
    form = {"token": token(client), "name": name, "password": given}
    return client.post("/login", data=form, headers=OURS, follow_redirects=False)


@pytest.fixture(scope="module")
def by_role(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TestClient]]:
    file = tmp_path_factory.mktemp("console") / "users.toml"
    for name, role in ROLES.items():
        add_user(file, name, role, Hashed.of(PASSWORDS[name], cost=Cost(16, 1, 1)))
    cluster = ClusterSettings("local", broker.bootstrap, write=True)
    settings = Settings(auth="password", users_file=str(file), write=True, clusters=(cluster,))
    broker.create_topic("orders")
    with TestClient(make_app(settings), base_url=URL) as first:
        clients = {name: TestClient(first.app, base_url=URL) for name in ROLES}
        # One event loop for all of them.
        for one in clients.values():
            one.portal = first.portal
        for name, client in clients.items():
            assert log_in(client, name).status_code == 303
        yield clients


ACTIONS = {
    "/c/local/topics/orders/produce": Role.OPERATOR,
    "/c/local/groups/billing/reset-preview": Role.OPERATOR,
    "/c/local/groups/billing/reset": Role.OPERATOR,
    "/c/local/queues/warehouse/letters/redrive-preview": Role.OPERATOR,
    "/c/local/queues/warehouse/letters/redrive": Role.OPERATOR,
    "/c/local/queues/warehouse/letters/stop": Role.OPERATOR,
    "/c/local/transactions/billing-1/fence": Role.OPERATOR,
    "/c/local/transactions/hanging/abort": Role.OPERATOR,
    "/c/local/queues/warehouse/reset-preview": Role.OPERATOR,
    "/c/local/queues/warehouse/reset": Role.OPERATOR,
    "/c/local/queues/warehouse/forget": Role.ADMIN,
    "/c/local/queues/doomed/delete": Role.ADMIN,
    "/c/local/queues/warehouse/configs/preview": Role.ADMIN,
    "/c/local/queues/warehouse/configs/apply": Role.ADMIN,
    "/c/local/groups/billing/forget": Role.ADMIN,
    "/c/local/topics/orders/configs/preview": Role.ADMIN,
    "/c/local/topics/orders/configs/apply": Role.ADMIN,
    "/c/local/topics/orders/partitions": Role.ADMIN,
    "/c/local/topics": Role.ADMIN,
    "/api/v1/c/local/topics/orders/messages": Role.OPERATOR,
    "/api/v1/c/local/topics/orders/configs": Role.ADMIN,
    "/api/v1/c/local/groups/billing/reset": Role.OPERATOR,
    "/api/v1/c/local/queues/warehouse/reset": Role.OPERATOR,
    "/api/v1/c/local/queues/warehouse/letters/redrive": Role.OPERATOR,
    "/api/v1/c/local/transactions/billing-1/fence": Role.OPERATOR,
    "/c/local/nodes/move": Role.ADMIN,
    "/c/local/nodes/elect": Role.ADMIN,
    "/c/local/topics/doomed/delete": Role.ADMIN,
    "/c/local/groups/doomed/delete": Role.ADMIN,
    "/c/local/nodes/drain": Role.ADMIN,
    "/c/local/security/preview": Role.ADMIN,
    "/c/local/security/apply": Role.ADMIN,
    "/c/local/schemas/change/preview": Role.ADMIN,
    "/c/local/schemas/change/apply": Role.ADMIN,
}
FORM = {"name": "doomed", "value": "x", "key": "retention.ms", "to": "latest"}


def gates(routes: list[BaseRoute]) -> Iterator[tuple[str, Role]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from gates(list(route.routes))
        elif isinstance(route, Route) and hasattr(route.endpoint, "role"):
            yield route.path, route.endpoint.role


def test_case_30_every_action_has_its_role(by_role: dict[str, TestClient]) -> None:
    """A change that the table does not know would not be tested."""
    found = dict(gates(list(by_role["anna"].app.routes)))  # type: ignore[attr-defined]

    def pattern(path: str) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{\w+\}", "[^/]+", path))

    for known, role in found.items():
        [path] = [one for one in ACTIONS if pattern(known).fullmatch(one)]
        assert ACTIONS[path] is role, path
    assert len(found) == len(ACTIONS)


@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize("path", ACTIONS)
def test_case_30_roles_and_actions(
    by_role: dict[str, TestClient], broker: EmbeddedBroker, name: str, path: str
) -> None:
    with Admin(broker.bootstrap) as admin:
        if "doomed" not in [one.name for one in admin.list_topics()]:
            admin.create_topic("doomed")
        for group in ("billing", "doomed"):
            admin.alter_group_offsets(group, {("orders", 0): 0})
    client = by_role[name]
    form = {**FORM, "token": token(client, "/c/local/topics/orders?tab=configs"), "value": "1000"}
    answer = client.post(path, data=form, headers=OURS, follow_redirects=False)
    if ROLES[name] >= ACTIONS[path]:
        # Done, or refused for another reason: a reset without a preview, a queue without letters.
        assert answer.status_code != 403, answer.text
    else:
        assert answer.status_code == 403
        assert f"needs the role {ACTIONS[path].word}; yours is {ROLES[name].word}" in answer.text


def test_case_30_buttons_are_on_for_those_who_may(by_role: dict[str, TestClient]) -> None:
    def has_button(name: str, path: str, word: str) -> bool:
        page = by_role[name].get(path).text
        [found] = re.findall(rf"<button([^>]*)>{word}</button>", page)
        return "disabled" not in found

    for name, role in ROLES.items():
        produce = has_button(name, "/c/local/topics/orders/produce", "Produce")
        assert produce is (role >= Role.OPERATOR)
        assert has_button(name, "/c/local/topics/orders?tab=configs", "Preview") is (
            role >= Role.ADMIN
        )


def test_audit_lines_name_the_person(
    by_role: dict[str, TestClient], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    client = by_role["olaf"]
    path = "/c/local/topics/orders/produce"
    form = {"value": "x", "token": token(client, path)}
    assert client.post(path, data=form, headers=OURS, follow_redirects=False).status_code == 303
    [line] = [json.loads(one.message) for one in caplog.records if one.name == "ottla.audit"]
    assert line["principal"] == "User:olaf"
    assert (line["event"], line["operation"], line["outcome"]) == ("admin", "Write", "done")


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedBroker]:
    security = Secured(
        users=PASSWORDS,
        super_users=["anna"],
        acls=[
            "allow vera read topic:public",
            "allow vera read group:readers",
            "allow olaf read topic:private",
            "allow olaf write topic:private",
            "allow olaf describe cluster",
        ],
        protocol="SASL_PLAINTEXT",
    )
    with EmbeddedBroker(security=security) as running:
        with Admin(running.bootstrap, security=user("anna")) as admin:
            for name in ("public", "private"):
                admin.create_topic(name)
        with Producer(running.bootstrap, security=user("anna")) as producer:
            producer.send("public", b"for everybody")
            producer.send("private", b"for olaf alone")
        yield running


def user(name: str) -> Security:
    return Security(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=name,
        sasl_password=PASSWORDS[name],
    )


@pytest.fixture
def sasl(secured: EmbeddedBroker, tmp_path: Path) -> Iterator[TestClient]:
    file = tmp_path / "how.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n")
    cluster = ClusterSettings("local", secured.bootstrap, str(file), write=True)
    settings = settled(Settings(write=True, clusters=(cluster,)))
    assert settings.auth == "sasl"
    with TestClient(make_app(settings), base_url=URL, follow_redirects=False) as client:
        yield client


def beside(client: TestClient) -> TestClient:
    """Another browser of the same console."""
    other = TestClient(client.app, base_url=URL, follow_redirects=False)
    other.portal = client.portal
    return other


def test_case_71_each_sees_and_changes_what_the_broker_allows(
    sasl: TestClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    vera, olaf = beside(sasl), beside(sasl)
    console = sasl.app.state.console  # type: ignore[attr-defined]
    assert console.owners.open == 0
    assert vera.get("/c/local/").status_code == 303
    assert log_in(vera, "vera").status_code == 303
    assert log_in(olaf, "olaf").status_code == 303
    for _ in range(2):  # in turn: what one has seen is not shown to the other
        assert "public" in vera.get("/c/local/topics").text
        assert ">private</bdi>" not in vera.get("/c/local/topics").text
        assert ">private</bdi>" in olaf.get("/c/local/topics").text
        assert ">public</bdi>" not in olaf.get("/c/local/topics").text
    assert "for everybody" in vera.get("/c/local/topics/public/messages").text
    assert "for olaf alone" in olaf.get("/c/local/topics/private/messages").text
    assert "for olaf alone" not in vera.get("/c/local/topics/private/messages").text
    assert console.owners.open == 2
    mine = [console.owners.of(one, 0.0)["local"] for one in console.door.logins._logins]
    assert mine[0].snapshot is not mine[1].snapshot
    assert mine[0].cluster.sampler.history is not mine[1].cluster.sampler.history

    def produce(client: TestClient, topic: str) -> int:
        path = f"/c/local/topics/{topic}/produce"
        form = {"value": "x", "token": token(client, "/c/local/")}
        return client.post(path, data=form, headers=OURS).status_code

    assert produce(olaf, "private") == 303
    assert produce(vera, "public") == 409
    everything = caplog.text + repr(dict(vera.cookies)) + repr(dict(olaf.cookies))
    everything += "".join(one.read_text() for one in tmp_path.rglob("*") if one.is_file())
    everything += repr(console.owners._own) + repr(mine[0].cluster.settings)
    for password in PASSWORDS.values():
        assert password not in everything


def test_case_71_a_wrong_password_and_a_cluster_that_is_away(
    sasl: TestClient, tmp_path: Path
) -> None:
    assert log_in(sasl, "vera", "wrong").status_code == 401
    assert log_in(sasl, "nobody", "wrong").status_code == 401
    assert log_in(sasl, "vera").status_code == 303
    away = Settings(auth="sasl", clusters=(ClusterSettings("local", "127.0.0.1:1"),))
    with TestClient(make_app(away), base_url=URL) as client:
        answer = log_in(client, "vera")
        assert answer.status_code == 503
        assert "cannot be asked" in answer.text
        assert client.get("/readyz").status_code == 200
    file = tmp_path / "who.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="a" password="b";\n'
    )
    both = Settings(auth="sasl", clusters=(ClusterSettings("local", "127.0.0.1:1", str(file)),))
    with pytest.raises(BadSetting, match="people log in themselves"):
        make_app(both)


def test_case_71_connections_that_nobody_uses_are_closed(sasl: TestClient) -> None:
    console = sasl.app.state.console  # type: ignore[attr-defined]
    assert log_in(sasl, "vera").status_code == 303
    assert "public" in sasl.get("/c/local/topics").text
    assert console.owners.open == 1

    async def sweep() -> None:
        console.owners.sweep(console.clock.monotonic() + 1_000)

    assert sasl.portal is not None
    sasl.portal.call(sweep)
    assert console.owners.open == 0
    assert "public" in sasl.get("/c/local/topics").text
    form = {"token": token(sasl, "/c/local/")}
    assert sasl.post("/logout", data=form, headers=OURS).status_code == 303
    assert console.owners.open == 0
    assert not console.owners._own
