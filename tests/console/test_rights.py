"""Rights, quotas, users and schemas are changed as previewed, behind the gate, and told."""

from __future__ import annotations

import html
import json
import logging
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.sync import Admin
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.secured import Secured
from tests.console.conftest import URL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.admin.types import Acl

pytestmark = pytest.mark.long
OURS = {"origin": URL}
AT = "/c/local"
RULE = {
    "do": "add",
    "permission": "allow",
    "principal": "bob",
    "operation": "read",
    "kind": "topic",
    "resource": "orders*",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    security = Secured(
        users={"admin": "secret", "bob": "secret", "carl": "secret"},
        super_users=["admin"],
        protocol="SASL_PLAINTEXT",
    )
    with EmbeddedBroker(security=security) as running:
        yield running


def settings(broker: EmbeddedBroker, user: str = "admin") -> Settings:
    file = str(broker.properties_file(user))
    return Settings(
        write=True, clusters=(ClusterSettings("local", broker.bootstrap, file, write=True),)
    )


@pytest.fixture(scope="module")
def client(broker: EmbeddedBroker) -> Iterator[TestClient]:
    with TestClient(make_app(settings(broker)), base_url=URL, follow_redirects=False) as found:
        yield found


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla.audit")
    return caplog


def told(audit: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    lines = [json.loads(one.message) for one in audit.records if one.name == "ottla.audit"]
    return [
        (one["operation"], one["resource"], one["outcome"]) for one in lines if "cluster" in one
    ]


def token(client: TestClient) -> str:
    found = re.search(r'name="token" value="(\w+)"', client.get(f"{AT}/security").text)
    assert found is not None
    return found[1]


def post(client: TestClient, step: str, **form: str) -> Any:
    return client.post(f"{AT}/{step}", data={"token": token(client), **form}, headers=OURS)


def change(client: TestClient, page: str = "security", **form: str) -> Any:
    """Preview it, and do what the preview says."""
    seen = post(client, f"{page}/preview", **form)
    assert seen.status_code == 200, seen.text
    found = re.search(r'name="change" value="([^"]+)"', seen.text)
    assert found is not None, seen.text
    answer = post(client, f"{page}/apply", change=found[1])
    assert answer.status_code == 303, answer.text
    return seen.text


def acls(broker: EmbeddedBroker) -> list[Acl]:
    with Admin(broker.bootstrap, security=broker.security("admin")) as admin:
        return [one for one in admin.describe_acls() if one.principal == "User:bob"]


def test_case_75_a_rule_is_added_as_previewed_and_deleted_by_its_row(
    client: TestClient, broker: EmbeddedBroker, audit: pytest.LogCaptureFixture
) -> None:
    before = acls(broker)
    seen = post(client, "security/preview", **RULE)
    assert "allow User:bob read topic:orders*" in html.unescape(seen.text)
    assert acls(broker) == before, "a preview changes nothing"
    assert told(audit) == []
    change(client, **RULE)
    [added] = [one for one in acls(broker) if one not in before]
    assert (added.name, added.pattern, added.operation) == ("orders", "prefixed", "read")
    page = client.get(f"{AT}/security?contains=bob").text
    [row] = [one for one in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if "orders*" in one]
    fields = dict(re.findall(r'<input type="hidden" name="([\w:-]+)" value="([^"]*)">', row))
    fields.pop("token")
    change(client, **{key: html.unescape(value) for key, value in fields.items()})
    assert acls(broker) == before
    rule = "acl allow User:bob read topic:orders*"
    assert told(audit) == [("Alter", rule, "done"), ("Alter", rule, "done")]
    again = post(client, "security/preview", **{**RULE, "do": "revoke", "pattern": "prefixed"})
    assert again.status_code == 409


def test_case_75_a_quota_is_set_shown_and_taken_away(
    client: TestClient, broker: EmbeddedBroker
) -> None:
    form = {"do": "quota", "kind": "user", "name": "bob", "quota": "producer_byte_rate"}
    seen = change(client, **form, value="1000000")
    assert "producer_byte_rate = 1,000,000" in seen

    def quotas() -> dict[str, float]:
        with Admin(broker.bootstrap, security=broker.security("admin")) as admin:
            found = admin.describe_quotas({"user": "bob"})
        return {key: value for one in found for key, value in one.values.items()}

    assert quotas() == {"producer_byte_rate": 1e6}
    assert 'name="e:user" value="bob"' in client.get(f"{AT}/security").text
    change(client, **{"do": "quota", "e:user": "bob", "quota": "producer_byte_rate"})
    assert quotas() == {}


def test_case_75_a_user_is_deleted_but_not_the_console_s_own(
    client: TestClient, broker: EmbeddedBroker, audit: pytest.LogCaptureFixture
) -> None:
    own = post(client, "security/preview", do="user", user="admin")
    assert own.status_code == 409
    assert "command line" in own.text
    change(client, do="user", user="carl")
    with Admin(broker.bootstrap, security=broker.security("admin")) as admin:
        assert "carl" not in [one.name for one in admin.describe_users()]
    assert told(audit) == [("Alter", "user carl", "done")]
    assert "password" not in " ".join(
        re.findall(r"<input[^>]*>", client.get(f"{AT}/security").text)
    )


def test_case_26_changes_of_rights_are_signed_and_cannot_be_forged(
    client: TestClient, broker: EmbeddedBroker
) -> None:
    before = acls(broker)
    seen = post(client, "security/preview", **RULE).text
    found = re.search(r'name="change" value="([^"]+)"', seen)
    assert found is not None
    mark, _, body = found[1].partition(".")
    for forged in ("", mark, f"{mark}.{body[:-8]}", f"{'0' * 64}.{body}"):
        assert post(client, "security/apply", change=forged).status_code == 409
    wrong = client.post(f"{AT}/security/apply", data={"change": found[1]}, headers=OURS)
    assert wrong.status_code == 403, "no token"
    # A preview of one page is none of another's.
    assert post(client, "schemas/change/apply", change=found[1]).status_code == 409
    assert acls(broker) == before


def test_case_75_somebody_without_rights_is_told_what_is_needed(
    broker: EmbeddedBroker, audit: pytest.LogCaptureFixture
) -> None:
    with TestClient(make_app(settings(broker, "bob")), base_url=URL) as bob:
        found = re.search(r'name="token" value="(\w+)"', bob.get(f"{AT}/topics/x/produce").text)
        assert found is not None
        data = {"token": found[1], **RULE}
        seen = bob.post(f"{AT}/security/preview", data=data, headers=OURS)
        signed = re.search(r'name="change" value="([^"]+)"', seen.text)
        assert signed is not None, seen.text
        data = {"token": found[1], "change": signed[1]}
        answer = bob.post(f"{AT}/security/apply", data=data, headers=OURS)
    assert answer.status_code == 409
    assert "CLUSTER_AUTHORIZATION_FAILED" in answer.text
    assert [one[2] for one in told(audit)] == ["failed"]


def test_case_29_commands_of_previews_run_as_printed(
    client: TestClient, broker: EmbeddedBroker
) -> None:
    def command(page: str) -> list[str]:
        found = re.search(r"as a command</summary><pre><code>(.*?)</code>", page, re.DOTALL)
        assert found is not None
        return shlex.split(html.unescape(re.sub(r"<[^>]+>", "", found[1])))

    before = acls(broker)
    for do, left in (("add", 1), ("revoke", 0)):
        form = {**RULE, "do": do, "host": "10.0.0.7", "pattern": "prefixed"}
        words = command(post(client, "security/preview", **form).text)
        assert words[:2] == ["ottla", "acl"]
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, result.output
        assert len(acls(broker)) == len(before) + left
    form = {"do": "quota", "kind": "ip", "name": "10.0.0.7", "quota": "connection_creation_rate"}
    words = command(post(client, "security/preview", **form, value="20").text)
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, result.output
