"""`ottla user`, `ottla acl` and `ottla quota` from the outside."""

from __future__ import annotations

import json
import random
import stat
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import ottla
from ottla.cli.acl import _decide, worded
from ottla.cli.whole import app
from ottla.metadata.errors import UnacceptableCredential
from ottla.metadata.security.acls import Pattern
from ottla.metadata.security.users import check_user_name
from ottla.metadata.stores.sqlite import SqliteMetadataStore
from tests.support.permission_rows import random_acl
from tests.support.rights import rights_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

    from tests.support.rights import RightsBroker


@pytest.fixture(scope="module")
def place() -> Iterator[RightsBroker]:
    with rights_broker() as made:
        yield made


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, args, input=stdin)


class Root:
    """Commands of the super user."""

    def __init__(self, place: RightsBroker) -> None:
        self._at = ("--bootstrap", place.bootstrap("root"))

    def ok(self, *args: str, stdin: str | None = None) -> str:
        result = run(*args, *self._at, stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return result.stdout

    def value(self, *args: str) -> Any:
        return json.loads(self.ok(*args, "--json"))

    def failed(self, *args: str, status: int = 1) -> str:
        result = run(*args, *self._at)
        assert result.exit_code == status, result.output
        return result.output


@pytest.fixture
def root(place: RightsBroker) -> Root:
    place.grant()
    return Root(place)


def test_a_user_from_birth_to_death(root: Root, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish\n")
    assert root.ok("user", "create", "carol", "--password-file", str(secret)) == (
        "created user carol\n"
    )
    changed = root.ok(
        "user",
        "create",
        "carol",
        "--mechanism",
        "SCRAM-SHA-256",
        "--password-file",
        "-",
        stdin="swordfish\n",
    )
    assert changed == "changed the password of carol; connections of carol are closed\n"
    assert root.value("user", "describe", "carol") == [
        {"name": "carol", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}}
    ]
    assert "carol" in root.ok("user", "list")
    root.ok("user", "delete", "carol", "--mechanism", "SCRAM-SHA-256")
    assert root.value("user", "list") == [{"name": "carol", "mechanisms": {"SCRAM-SHA-512": 8192}}]
    assert root.ok("user", "delete", "carol") == "deleted user carol\n"
    assert "carol" in root.failed("user", "describe", "carol")
    assert "carol" in root.failed("user", "delete", "carol")


def test_a_generated_password_is_printed_once(root: Root) -> None:
    made = root.value("user", "create", "dora", "--generate", "--iterations", "4096")
    assert len(made["password"]) == 24
    assert made["password"] not in root.ok("user", "list")
    root.ok("user", "delete", "dora")


def test_a_password_is_never_an_argument(root: Root) -> None:
    assert "--password-file" in root.failed("user", "create", "erin", status=2)
    both = ("user", "create", "erin", "--generate", "--password-file", "x")
    assert "not both" in root.failed(*both, status=2)
    assert "No such file" in root.failed(
        "user", "create", "erin", "--password-file", "/no/such/file", status=2
    )
    assert "no password" in root.failed(
        "user", "create", "erin", "--password-file", "/dev/null", status=2
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a\0b", "control characters"),
        ("first\nsecond\n", "several lines"),
        ("x" * 1025, "1024 bytes that PLAIN takes"),
    ],
)
def test_a_password_that_not_every_mechanism_takes_is_refused(
    root: Root, tmp_path: Path, content: str, said: str
) -> None:
    """Fault: such a user was made, and could not log in with PLAIN."""
    secret = tmp_path / "secret"
    secret.write_text(content)
    told = root.failed("user", "create", "erin", "--password-file", str(secret), status=2)
    assert said in " ".join(told.split())
    assert content.strip() not in told


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ("topic", "name the topic, as in topic:orders"),
        ("topic:", "'topic:*' is all of them"),
        ("txn", "name the txn"),
        ("topic:a,b", "no topic can be called 'a,b'"),
        ("topic:a*b", "no topic can be called 'a*b'"),
    ],
)
def test_an_acl_of_a_name_that_cannot_be_is_refused(root: Root, resource: str, said: str) -> None:
    """Fault: `topic:a,b` was allowed without a word, and gave rights to neither a nor b."""
    for command in (("allow", "erin", "write", "on"), ("grant", "erin", "transactional")):
        told = root.failed("acl", *command, resource, status=2)
        assert said in " ".join(told.split())


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("read on cluster", "ask for all, create, alter"),
        ("write on group:g", "ask for all, read, delete, describe"),
        ("read on txn:t", "ask for all, write, describe"),
        ("cluster_action on topic:t", "ask for all, read, write"),
    ],
)
def test_an_acl_without_effect_is_refused(root: Root, what: str, said: str) -> None:
    """Fault: they were made without a word, as if they allowed or denied something."""
    for permission in ("allow", "deny"):
        told = root.failed("acl", permission, "erin", *what.split(), status=2)
        assert "would have no effect" in " ".join(told.split())
        assert said in " ".join(told.split())


def test_names_of_the_brokers_own_users_are_refused(root: Root, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    assert "__" in root.failed("user", "create", "__node", "--password-file", str(secret))


@pytest.mark.parametrize("name", ["*", " ", "   "])
def test_names_that_mean_everyone_or_nothing_are_refused(name: str) -> None:
    with pytest.raises(UnacceptableCredential, match=r"other than \*"):
        check_user_name(name)


def test_the_first_user_is_written_to_a_directory(tmp_path: Path) -> None:
    """Case 47: before the first start; the administrator may everything."""
    data, secret = tmp_path / "data", tmp_path / "secret"
    data.mkdir()
    secret.write_text("swordfish")
    made = run("user", "create", "boss", "--admin", "--data-dir", str(data),
               "--password-file", str(secret))  # fmt: skip
    assert made.exit_code == 0, made.output
    audit = json.loads(made.stderr)
    assert (audit["event"], audit["resource"]) == ("admin", "User:boss")
    assert "swordfish" not in made.output
    assert stat.S_IMODE((data / "metadata.db").stat().st_mode) == 0o600
    store = SqliteMetadataStore(data / "metadata.db")
    image = store.snapshot()
    store.close()
    assert set(image.scram["boss"]) == {"SCRAM-SHA-512"}
    assert {acl.principal for acl in image.acls} == {"User:boss"}
    with ottla.EmbeddedBroker(data):
        pass
    missing = run("user", "create", "x", "--data-dir", str(tmp_path / "none"), "--generate")
    assert missing.exit_code == 1


def test_a_password_in_a_directory_is_changed_for_every_mechanism(tmp_path: Path) -> None:
    def stored() -> dict[str, bytes]:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        image = store.snapshot()
        store.close()
        return {one: made.stored_key for one, made in image.scram["boss"].items()}

    create = ("user", "create", "boss", "--generate", "--data-dir", str(tmp_path))
    assert run(*create, "--mechanism", "SCRAM-SHA-256").stdout.startswith("created user boss\n")
    assert set(stored()) == {"SCRAM-SHA-256"}
    first = run(*create)
    assert first.stdout.startswith("changed the password of boss; ")
    before = stored()
    assert set(before) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert json.loads(run(*create, "--json").stdout)["new"] is False
    after = stored()
    assert all(after[one] != before[one] for one in before)


def test_a_line_for_the_bootstrap_file(tmp_path: Path) -> None:
    from ottla.metadata.security.first_users import parse_users

    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    line = run("user", "hash", "admin", "--password-file", str(secret)).stdout
    [user] = parse_users(line)
    assert (user.user, user.mechanism, user.credential.iterations) == (
        "admin",
        "SCRAM-SHA-512",
        8192,
    )


def test_acls_from_birth_to_death(root: Root) -> None:
    assert root.ok("acl", "allow", "alice", "read", "write", "on", "topic:orders*") == (
        "allow User:alice read topic:orders*\nallow User:alice write topic:orders*\n"
    )
    root.ok("acl", "deny", "*", "all", "on", "topic:secret", "--host", "10.0.0.1")
    root.ok("acl", "allow", "User:bob", "cluster-action", "on", "cluster")
    assert len(root.value("acl", "list")) == 4
    listed = root.value("acl", "list", "--for", "topic:orders-eu")
    assert {(acl["operation"], acl["pattern"]) for acl in listed} == {
        ("read", "prefixed"),
        ("write", "prefixed"),
    }
    assert [acl["host"] for acl in root.value("acl", "list", "--principal", "*")] == ["10.0.0.1"]
    assert "orders*" in root.ok("acl", "list")
    assert root.ok("acl", "revoke", "alice", "read", "on", "topic:orders*") == (
        "deleted allow User:alice read topic:orders*\n"
    )
    assert len(root.value("acl", "revoke", "alice", "on", "topic:orders*")) == 1
    assert root.ok("acl", "revoke", "alice", "on", "topic:orders*") == "no ACLs\n"
    assert len(root.value("acl", "list")) == 2


@pytest.mark.long
@pytest.mark.parametrize("name", ["Jürgen Müller", 'CN=alice:a,O="My" Company'])
def test_an_argument_is_one_name(root: Root, name: str) -> None:
    """Fault: names with spaces were refused."""
    principal = f"User:{name}"
    given = root.value("acl", "grant", name, "consumer", "topic:orders", "group:my group")
    assert [(acl["principal"], acl["name"]) for acl in given] == [
        (principal, "orders"),
        (principal, "my group"),
    ]
    assert "allowed" in root.ok("acl", "test", name, "read", "group:my group")
    assert len(root.value("acl", "list", "--for", "group:my group", "--principal", name)) == 1
    root.ok("acl", "deny", name, "read", "describe", "on", "group:my group")
    printed = root.failed("acl", "test", principal, "read", "group:my group")
    [denied] = ottla.Acl.parse(printed.removeprefix("denied: "))
    assert (denied.principal, denied.name) == (principal, "my group")
    assert len(root.value("acl", "revoke", name, "on", "group:my group")) == 3


@pytest.mark.parametrize(
    "args",
    [
        ("allow", "alice", "read", "topic:orders"),
        ("allow", "alice", "on", "topic:orders"),
        ("revoke", "alice"),
        ("revoke", "alice", "on", "topic:orders", "--all"),
        ("allow", "alice", "fly", "on", "topic:orders"),
        ("allow", "alice", "read", "on", "planet:mars"),
        ("test", "alice", "topic:orders"),
        ("test", "alice", "read", "write", "on", "topic:orders"),
        ("grant", "alice", "king", "topic:orders"),
        ("grant", "alice", "producer"),
        ("grant", "alice", "producer", "topic:orders", "group:g"),
        ("grant", "alice", "consumer", "topic:orders"),
    ],
)
def test_a_command_that_means_nothing_says_so(root: Root, args: tuple[str, ...]) -> None:
    root.failed("acl", *args, status=2)
    assert root.value("acl", "list") == []


def test_a_role_is_printed_before_it_is_given(root: Root) -> None:
    grant = ("acl", "grant", "alice", "consumer", "topic:orders", "group:billing")
    assert root.value(*grant, "--dry-run")
    assert root.value("acl", "list") == []
    assert (
        root.ok(*grant)
        == "allow User:alice read topic:orders\nallow User:alice read group:billing\n"
    )
    assert len(root.value("acl", "list")) == 2


async def test_113_the_test_command_agrees_with_the_broker(place: RightsBroker) -> None:
    """A thousand questions, each answered from what the broker tells an administrator."""
    assert place.broker._node is not None
    authorizer = place.broker._node.services.authorizer
    assert authorizer is not None
    choose = random.Random(113)
    answers = []
    async with ottla.Admin(place.bootstrap("root")) as admin:
        for _ in range(50):
            acls = list({random_acl(choose) for _ in range(10)})
            place.set(acls)
            for _ in range(20):
                about = choose.choice([*acls, random_acl(choose)])
                about = about._replace(pattern=Pattern.LITERAL)
                decision = await _decide(admin, worded(about), "127.0.0.1")
                may = authorizer.access(about.principal, "127.0.0.1").may
                assert decision.allowed == may(about.operation, about.resource, about.name)
                answers.append(decision.allowed)
    assert 100 < sum(answers) < 900


def test_the_test_command_names_the_rule(root: Root) -> None:
    root.ok("acl", "deny", "alice", "write", "on", "topic:ord*")
    root.ok("acl", "allow", "alice", "all", "on", "topic:*")
    for words in (["read", "topic:orders"], ["read", "on", "topic:orders"]):
        assert root.ok("acl", "test", "alice", *words) == (
            "allowed: allow User:alice all topic:*\n"
        )
    assert root.failed("acl", "test", "alice", "write", "topic:orders") == (
        "denied: deny User:alice write topic:ord*\n"
    )
    assert "super user" in root.ok("acl", "test", "root", "write", "topic:orders")
    assert "own topic" in root.failed("acl", "test", "alice", "write", "topic:__consumer_offsets")
    assert "no ACL" in root.failed("acl", "test", "bob", "read", "group:g")


def test_without_an_authorizer_everything_is_allowed(ottla_broker: ottla.EmbeddedBroker) -> None:
    at = ("--bootstrap", ottla_broker.bootstrap)
    assert "no authorizer" in run("acl", "test", "alice", "read", "topic:t", *at).stdout
    refused = run("acl", "allow", "alice", "read", "on", "topic:t", *at)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "authorizer.class.name" in refused.stderr


def test_quotas_from_birth_to_death(root: Root) -> None:
    assert root.ok("quota", "set", "user=alice,client=app", "produce=1MB/s", "requests=50%") == (
        "set produce=1000000, requests=50 of user=alice,client=app\n"
    )
    root.ok("quota", "set", "user", "fetch=2MiB/s")
    root.ok("quota", "set", "ip=10.0.0.1", "connections=20/s")
    found = {json.dumps(one["entity"]): one["values"] for one in root.value("quota", "list")}
    assert found == {
        '{"client-id": "app", "user": "alice"}': {
            "producer_byte_rate": 1e6,
            "request_percentage": 50.0,
        },
        '{"user": null}': {"consumer_byte_rate": float(2 << 20)},
        '{"ip": "10.0.0.1"}': {"connection_creation_rate": 20.0},
    }
    assert "user=alice,client=app" in root.ok("quota", "list", "user=alice")
    assert root.ok("quota", "delete", "user=alice,client=app", "requests") == (
        "deleted requests of user=alice,client=app\n"
    )
    for entity in ("user=alice,client=app", "user", "ip=10.0.0.1"):
        root.ok("quota", "delete", entity)
    assert root.ok("quota", "list") == "no quotas\n"
    assert root.ok("quota", "delete", "user") == "no quotas\n"


@pytest.mark.long
def test_a_quota_of_a_name_with_a_comma(root: Root) -> None:
    """Fault: a certificate's subject could not be named; large numbers were printed rounded."""
    entity = 'user="CN=alice,OU=""x""",client=app'
    said = root.ok("quota", "set", entity, "fetch=1MiB/s", "requests=12.5%")
    assert said == f"set fetch=1048576, requests=12.5 of {entity}\n"
    [found] = root.value("quota", "list", entity)
    assert found["entity"] == {"user": 'CN=alice,OU="x"', "client-id": "app"}
    assert "1048576 " in root.ok("quota", "list").replace("\n", " ")
    assert "fetch" in root.ok("quota", "delete", entity)


@pytest.mark.parametrize(
    "args",
    [
        ("user=CN=alice,OU=billing", "produce=1"),
        ("user=a,", "produce=1"),
        ('user=""', "produce=1"),
        ("group=g", "produce=1"),
        ("user=", "produce=1"),
        ("user=a,user=b", "produce=1"),
        ("user=a", "sing=1"),
        ("user=a", "produce=fast"),
        ("user=a", "requests=-1%"),
    ],
)
def test_a_quota_that_means_nothing_says_so(root: Root, args: tuple[str, ...]) -> None:
    root.failed("quota", "set", *args, status=2)
