"""The registry of several nodes: any of them is asked, one decides."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from ottla.sync import Admin
from tests.support.registry_http import ask

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(nodes=3, registry=True) as broker:
        yield broker


def urls(broker: EmbeddedBroker) -> dict[int, str]:
    found = {}
    for node, address in broker.nodes.items():
        with Admin(address) as admin:
            url = admin.registry_url()
        assert url is not None
        found[node] = url
    return found


def test_requests_reach_the_leader_from_every_node(cluster: EmbeddedBroker) -> None:
    served = urls(cluster)
    assert len(set(served.values())) == 3
    ids = set()
    for node, url in served.items():
        path = f"/subjects/a%2Fnode{node}/versions"
        answer = ask(url, "POST", path, {"schema": '"int"'})
        assert answer.status == 200, answer.body
        ids.add(answer.body["id"])
    assert len(ids) == 1
    names = [f"a/node{node}" for node in sorted(served)]
    for url in served.values():
        assert ask(url, "GET", "/subjects?subjectPrefix=a").body == names
        refused = ask(url, "GET", "/subjects/none/versions")
        assert (refused.status, refused.code) == (404, 40401)


def test_the_first_schema_of_all_may_come_to_any_node() -> None:
    with EmbeddedBroker(nodes=3, registry=True) as broker, ThreadPoolExecutor(3) as pool:
        served = urls(broker).values()  # the topic is made by the first that comes, for any of them
        post = partial(ask, method="POST", path="/subjects/a/versions", body={"schema": '"int"'})
        assert [answer.status for answer in pool.map(post, served)] == [200] * 3


def test_the_registry_moves_with_its_topic(cluster: EmbeddedBroker) -> None:
    served = urls(cluster)
    number = ask(served[1], "POST", "/subjects/moves/versions", {"schema": '"long"'}).body["id"]
    for leader in (1, 2, 3):
        cluster.move("_schemas", 0, leader)
        for url in served.values():
            assert ask(url, "GET", f"/schemas/ids/{number}").body["schema"] == '"long"'
    assert (
        ask(served[1], "POST", "/subjects/moves/versions", {"schema": '"long"'}).body["id"]
        == number
    )


def test_a_forwarded_request_is_not_forwarded_again(cluster: EmbeddedBroker) -> None:
    served = urls(cluster)
    ask(served[1], "POST", "/subjects/loop/versions", {"schema": '"int"'})
    cluster.move("_schemas", 0, 2)
    answer = ask(served[1], "GET", "/subjects", headers={"X-Ottla-Forwarded": "1"})
    assert (answer.status, answer.code) == (500, 50003)
