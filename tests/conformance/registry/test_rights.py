"""Who may do what with subjects, over TLS and with a password."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker, SchemaRegistry, Secured
from ottla.broker.access.permissions import REGISTRY_ROUTES
from ottla.registry.routes import ROUTES
from tests.support.registry_http import Answered, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Asking = Callable[..., Answered]

PASSWORDS = {"admin": "a-secret", "writer": "w-secret", "reader": "r-secret", "none": "n-secret"}
ACLS = [
    "allow writer write topic:orders",
    "allow reader describe topic:orders",
    "allow writer delete topic:gone",
    "allow writer write topic:gone",
]
SCHEMA = {"schema": '"int"'}


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedBroker]:
    security = Secured(users=PASSWORDS, super_users=["admin"], acls=ACLS)
    with EmbeddedBroker(security=security, registry=True) as broker:
        yield broker


@pytest.fixture
def asking(secured: EmbeddedBroker) -> Asking:
    context = ssl.create_default_context(cafile=str(secured.ca_file))

    def asked(user: str, method: str, path: str, body: object = None) -> Answered:
        who = (user, PASSWORDS[user])
        return ask(secured.registry_url, method, path, body, user=who, context=context)

    return asked


def test_a_password_is_asked_for(secured: EmbeddedBroker) -> None:
    context = ssl.create_default_context(cafile=str(secured.ca_file))
    url = secured.registry_url
    assert url.startswith("https://")
    for user in (None, ("writer", "wrong"), ("nobody", "x"), ("__node", "x")):
        answer = ask(url, "GET", "/subjects", user=user, context=context)
        assert (answer.status, answer.code) == (401, 401)
        assert answer.headers["www-authenticate"].startswith("Basic ")


def test_rights_on_a_subject_are_those_on_its_topic(asking: Asking) -> None:
    path = "/subjects/orders-value/versions"
    for user in ("reader", "none"):
        assert asking(user, "POST", path, SCHEMA).code == 40301
    assert asking("writer", "POST", path, SCHEMA).status == 200
    assert asking("writer", "POST", "/subjects/orders-key/versions", SCHEMA).status == 200
    assert asking("writer", "POST", "/subjects/:.c:orders-key/versions", SCHEMA).status == 200
    assert asking("writer", "POST", "/subjects/orders2-value/versions", SCHEMA).code == 40301
    assert asking("reader", "GET", path).body == [1]
    # The same whether it exists or not.
    for missing in ("orders", "nothing"):
        answer = asking("none", "GET", f"/subjects/{missing}-value/versions")
        assert (answer.status, answer.code) == (403, 40301)


def test_lists_and_ids_leave_out_what_is_not_seen(asking: Asking) -> None:
    asking("writer", "POST", "/subjects/orders-value/versions", SCHEMA)
    number = asking("admin", "POST", "/subjects/hidden-value/versions", {"schema": '"bytes"'}).body
    assert "hidden-value" in asking("admin", "GET", "/subjects").body
    assert "hidden-value" not in asking("reader", "GET", "/subjects").body
    assert "orders-value" in asking("reader", "GET", "/subjects").body
    assert asking("none", "GET", "/subjects").body == []
    for path in ("", "/schema", "/subjects", "/versions"):
        assert asking("reader", "GET", f"/schemas/ids/{number['id']}{path}").code == 40403
        assert asking("reader", "GET", f"/schemas/ids/9999{path}").code == 40403
    assert asking("reader", "GET", f"/schemas/guids/{number['guid']}").code == 40403
    assert asking("admin", "GET", f"/schemas/ids/{number['id']}").status == 200
    shown = asking("reader", "GET", "/schemas").body
    assert {one["subject"] for one in shown} <= {"orders-value", "orders-key", ":.c:orders-key"}


def test_deleting_needs_delete(asking: Asking) -> None:
    for subject in ("orders-value", "gone-value"):
        asking("writer", "POST", f"/subjects/{subject}/versions", SCHEMA)
    assert asking("writer", "DELETE", "/subjects/orders-value").code == 40301
    assert asking("writer", "DELETE", "/subjects/gone-value/versions/1").status == 200


def test_what_counts_for_all_needs_alter_configs(asking: Asking) -> None:
    level, mode = {"compatibility": "BACKWARD"}, {"mode": "READWRITE"}
    for user, status in (("writer", 403), ("admin", 200)):
        assert asking(user, "PUT", "/config", level).status == status
        assert asking(user, "PUT", "/mode", mode).status == status
        assert asking(user, "PUT", "/config/:.c:", level).status == status
    assert asking("writer", "PUT", "/config/orders-value", level).status == 200
    assert asking("writer", "PUT", "/mode/orders-value", mode).status == 200
    assert asking("writer", "PUT", "/mode/orders-value", {"mode": "IMPORT"}).code == 40301
    given = {**SCHEMA, "id": 7}
    assert asking("writer", "POST", "/subjects/orders-value/versions", given).code == 40301


def test_every_route_has_a_row() -> None:
    assert ROUTES.keys() == REGISTRY_ROUTES.keys()


def test_every_route_is_refused_or_empty_without_rights(asking: Asking) -> None:
    asking("writer", "POST", "/subjects/orders-value/versions", SCHEMA)
    names = {"subject": "orders-value", "version": "1", "id": "1", "guid": "x"}
    for route, (needs, _) in REGISTRY_ROUTES.items():
        method, path = route.split()
        body = {"POST": SCHEMA, "PUT": {"compatibility": "NONE", "mode": "READONLY"}}.get(method)
        answer = asking("none", method, path.format(**names), body)
        if needs == "nothing":
            assert answer.status == 200, route
        else:
            assert answer.status in (403, 404) or answer.body in ([], ["."]), route


async def test_our_client_logs_in(secured: EmbeddedBroker) -> None:
    url = secured.registry_url
    async with SchemaRegistry(url, security=secured.security("writer")) as registry:
        found = await registry.register("orders-value", '"long"')
        assert (await registry.by_id(found.id)).text == '"long"'
