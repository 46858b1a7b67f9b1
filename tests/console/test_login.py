"""Logging in: by password, by a proxy's header, by token. No cluster is needed."""

from __future__ import annotations

import json
import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from ottla.console import door
from ottla.console.accounts import Cost, Hashed, Role, Users, add_token, add_user, read_users
from ottla.console.app import page_tag
from ottla.console.login import LOGIN_SECONDS
from ottla.console.pages.tails import tail_events
from ottla.console.serve import make_app
from ottla.console.settings import BadSetting, ClusterSettings, Settings
from ottla.console.tail import Turn
from tests.console.conftest import URL
from tests.support.clocks import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

OURS = {"origin": URL}
NOWHERE = (ClusterSettings("local", "127.0.0.1:1", write=True),)
CHEAP = Cost(16, 1, 1)
RIGHT = "correct horse"


LATER = datetime(1970, 1, 2, tzinfo=UTC)  # clocks of these tests begin at 0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "users.toml"
    for name, role in (("vera", Role.VIEWER), ("olaf", Role.OPERATOR), ("anna", Role.ADMIN)):
        add_user(file, name, role, Hashed.of(RIGHT, cost=CHEAP))
    return Settings(auth="password", users_file=str(file), write=True, clusters=NOWHERE)


@pytest.fixture
def client(settings: Settings, clock: ManualClock) -> Iterator[TestClient]:
    with TestClient(make_app(settings, clock), base_url=URL, follow_redirects=False) as client:
        yield client


def token(client: TestClient) -> str:
    found = re.search(r'name="token" value="(\w+)"', client.get("/login").text)
    assert found is not None
    return found[1]


def log_in(client: TestClient, name: str = "anna", password: str = RIGHT, back: str = "") -> Any:
    form = {"token": token(client), "name": name, "password": password, "back": back}
    return client.post("/login", data=form, headers=OURS)


def test_pages_ask_for_a_login_and_lead_back(client: TestClient) -> None:
    answer = client.get("/c/local/topics?contains=a%20b")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?back=%2Fc%2Flocal%2Ftopics%3Fcontains%3Da%2520b"
    page = client.get(answer.headers["location"]).text
    assert 'value="/c/local/topics?contains=a%20b"' in page
    assert "Overview" not in page
    for path in ("/api/v1/c/local/topics", "/api/v1/openapi.json"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert client.post("/c/local/topics/x/delete", headers=OURS).status_code == 401
    assert client.get("/healthz").status_code == 200
    assert client.get("/static/console.css").status_code == 200
    assert client.get("/staticfile").status_code == 303


def test_a_login_is_a_new_cookie_and_ends_by_logging_out(client: TestClient) -> None:
    client.get("/login")
    before = dict(client.cookies)
    answer = log_in(client, back="/theme?to=dark")
    assert (answer.status_code, answer.headers["location"]) == (303, "/theme?to=dark")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert RIGHT not in cookie
    assert dict(client.cookies) != before
    assert client.get("/api/v1/openapi.json").status_code == 200
    assert client.get("/login").status_code == 303
    [old] = client.cookies.values()
    page = client.get("/c/nowhere/").text
    assert ">anna</bdi>" in page
    found = re.search(r'action="/logout">.*?value="(\w+)"', page)
    assert found is not None
    assert client.post("/logout", data={"token": "0"}, headers=OURS).status_code == 403
    answer = client.post("/logout", data={"token": found[1]}, headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert client.get("/api/v1/openapi.json").status_code == 401
    stolen = {"cookie": f"ottla-console-9095={old}"}
    assert client.get("/api/v1/openapi.json", headers=stolen).status_code == 401


@pytest.mark.parametrize("back", ["//evil.example/", "https://evil.example/", "/\\evil", "", "x"])
def test_a_login_leads_to_no_other_site(client: TestClient, back: str) -> None:
    assert log_in(client, back=back).headers["location"] == "/"


def test_a_login_ends_after_twelve_hours(client: TestClient, clock: ManualClock) -> None:
    log_in(client)
    clock.advance(int(LOGIN_SECONDS * 1000) - 1)
    assert client.get("/api/v1/openapi.json").status_code == 200
    clock.advance(1)
    assert client.get("/api/v1/openapi.json").status_code == 401


def test_case_31_six_wrong_passwords_in_a_minute(
    client: TestClient, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    for number in range(5):
        answer = log_in(client, password="wrong")
        assert answer.status_code == 401, number
        assert "name or the password is wrong" in answer.text
        clock.advance(1_000)
    answer = log_in(client)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "55"
    assert log_in(client, "vera").status_code == 429  # from the same address
    clock.advance(55_000)
    assert log_in(client).status_code == 303
    lines = [json.loads(one.message) for one in caplog.records if one.name == "ottla.audit"]
    assert [one["outcome"] for one in lines] == ["failure"] * 5 + ["success"]
    assert lines[0]["event"] == "authenticate"
    assert lines[0]["user"] == "anna"
    assert lines[-1]["principal"] == "User:anna"
    assert "wrong" not in json.dumps([{**one, "reason": ""} for one in lines])
    assert RIGHT not in caplog.text


def test_a_login_needs_its_own_form(client: TestClient) -> None:
    form = {"name": "anna", "password": RIGHT}
    assert client.post("/login", data=form, headers=OURS).status_code == 403
    form["token"] = token(client)
    evil = {"origin": "http://evil.example"}
    assert client.post("/login", data=form, headers=evil).status_code == 403
    assert client.post("/login", data=form, headers=OURS).status_code == 303


@pytest.mark.parametrize(
    ("name", "password"),
    [("", RIGHT), ("anna", ""), ("anna", "x" * 2000), ("a\nb", RIGHT), ("x" * 300, RIGHT)],
)
def test_nonsense_is_a_wrong_login(client: TestClient, name: str, password: str) -> None:
    assert log_in(client, name, password).status_code == 401


def test_tokens_of_programs(settings: Settings, tmp_path: Path, clock: ManualClock) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, "script", Role.VIEWER, "right", LATER)
    with_tokens = Settings(
        auth="password",
        users_file=settings.users_file,
        tokens_file=str(file),
        write=True,
        clusters=NOWHERE,
    )
    with TestClient(make_app(with_tokens, clock), base_url=URL, follow_redirects=False) as client:

        def get(text: str) -> int:
            headers = {"authorization": text}
            return client.get("/api/v1/openapi.json", headers=headers).status_code

        assert get("Bearer right") == 200
        assert get("Bearer wrong") == 401
        assert get("Basic right") == 401
        # No form token is asked for, but the role is.
        answer = client.post("/c/local/topics/x/delete", headers={"authorization": "Bearer right"})
        assert answer.status_code == 403
        assert "needs the role admin; yours is viewer" in answer.text


@pytest.fixture
def behind(settings: Settings) -> Settings:
    return Settings(
        auth="proxy",
        users_file=settings.users_file,
        trusted_proxies=("10.0.0.5",),
        proxy_user_header="X-Person",
        write=True,
        clusters=NOWHERE,
    )


def test_a_proxy_names_people(behind: Settings) -> None:
    app = make_app(behind)
    with TestClient(app, base_url=URL, client=("10.0.0.5", 1), follow_redirects=False) as proxy:
        assert proxy.get("/c/nowhere/", headers={"x-person": "anna"}).status_code == 404
        page = proxy.get("/c/nowhere/", headers={"x-person": "stranger"}).text
        assert ">stranger</bdi>" in page
        assert "Log out" not in page
        assert proxy.get("/c/nowhere/").status_code == 401
        both = [("x-person", "anna"), ("x-person", "vera")]
        assert proxy.get("/c/nowhere/", headers=both).status_code == 401
        assert proxy.get("/c/nowhere/", headers={"x-person": " "}).status_code == 401
        assert proxy.get("/login", headers={"x-person": "anna"}).status_code == 404
    with TestClient(app, base_url=URL, client=("10.0.0.6", 1)) as other:
        answer = other.get("/c/nowhere/", headers={"x-person": "anna"})
        assert answer.status_code == 401
        assert "names nobody" in answer.text


def test_addresses_behind_a_proxy_are_those_of_visitors(behind: Settings) -> None:
    app = make_app(behind)
    console = app.state.console

    def address(client: str, forwarded: str) -> str:
        headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
        scope = {"type": "http", "client": (client, 1), "headers": headers}
        found: str = console.address(Request(scope))
        return found

    assert address("192.0.2.1", "198.51.100.7") == "192.0.2.1"
    assert address("10.0.0.5", "198.51.100.7") == "198.51.100.7"
    assert address("10.0.0.5", "1.1.1.1, 198.51.100.7") == "198.51.100.7"
    assert address("10.0.0.5", "198.51.100.7, 10.0.0.5") == "198.51.100.7"
    assert address("10.0.0.5", "nonsense") == "10.0.0.5"
    assert address("10.0.0.5", "") == "10.0.0.5"


def test_without_users_the_console_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    asked = Settings(auth="password", users_file=str(file), clusters=NOWHERE)
    with pytest.raises(BadSetting, match="ottla console user add NAME --role admin"):
        make_app(asked)
    file.write_text('[users.anna]\nrole = "admin"\n')
    with pytest.raises(BadSetting, match="ottla console user add NAME --role admin"):
        make_app(asked)


def test_a_changed_users_file_ends_logins(client: TestClient, settings: Settings) -> None:
    log_in(client)
    console = client.app.state.console  # type: ignore[attr-defined]
    file = Path(settings.users_file)
    add_user(file, "carl", Role.VIEWER, Hashed.of("x", cost=CHEAP))
    console.door.replace_users(read_users(file))
    assert client.get("/api/v1/openapi.json").status_code == 200
    add_user(file, "anna", Role.ADMIN, Hashed.of("another", cost=CHEAP))
    console.door.replace_users(read_users(file))
    assert client.get("/api/v1/openapi.json").status_code == 401


def test_a_password_that_is_replaced_while_it_is_checked_is_wrong(
    client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = client.app.state.console  # type: ignore[attr-defined]
    file = Path(settings.users_file)
    check = Users.check

    def checked(users: Users, name: str, password: str) -> Role | None:
        found = check(users, name, password)
        add_user(file, "anna", Role.ADMIN, Hashed.of("another", cost=CHEAP))
        console.door.replace_users(read_users(file))
        return found

    monkeypatch.setattr(Users, "check", checked)
    assert log_in(client).status_code == 401
    assert client.get("/api/v1/openapi.json").status_code == 401


def test_a_console_that_runs_takes_a_changed_users_file(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door, "UPKEEP_SECONDS", 0.01)
    file = Path(settings.users_file)
    with TestClient(make_app(settings), base_url=URL, follow_redirects=False) as client:
        assert log_in(client).status_code == 303
        add_user(file, "anna", Role.ADMIN, Hashed.of("another", cost=CHEAP))
        until(lambda: client.get("/api/v1/openapi.json").status_code == 401)
        assert log_in(client, password="another").status_code == 303
        for text, said in (("", "has no users"), ("[users.anna", "is not TOML")):
            file.write_text(text)
            until(lambda said=said: said in caplog.text)  # type: ignore[misc]
            assert client.get("/api/v1/openapi.json").status_code == 200


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_metrics_need_a_login_or_a_token(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, "prometheus", Role.VIEWER, "right", datetime(2100, 1, 1, tzinfo=UTC))
    asked = Settings(auth="sasl", tokens_file=str(file), clusters=NOWHERE)
    with TestClient(make_app(asked), base_url=URL, follow_redirects=False) as client:
        assert client.get("/metrics").status_code == 401
        answer = client.get("/metrics", headers={"authorization": "Bearer right"})
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "ottla_console_requests_total 2\n" in answer.text


def test_a_page_that_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    client.get("/login")  # from now on the cookie stays the same
    first = client.get("/login")
    tag = first.headers["etag"]
    again = client.get("/login", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == tag
    assert "content-security-policy" in again.headers
    other = client.get("/login?back=/theme", headers={"if-none-match": tag})
    assert other.status_code == 200


def test_pages_that_differ_in_age_alone_have_the_same_tag() -> None:
    def page(age: str, row: str) -> str:
        return f'<header><span id="age">{age}</span></header><p>{row}</p>'

    assert page_tag(page("2 s ago", "x")) == page_tag(page("", "x"))
    assert page_tag(page("2 s ago", "x")) != page_tag(page("2 s ago", "y"))


async def test_a_live_tail_ends_with_the_login(settings: Settings, clock: ManualClock) -> None:
    app = make_app(settings, clock)
    console = app.state.console
    cookie = console.door.logins.open("anna", 0.0)
    header = f"{console.visitors.cookie}={cookie}".encode()
    request = Request({"type": "http", "app": app, "headers": [(b"cookie", header)]})

    async def turns() -> AsyncIterator[Turn]:
        while True:
            yield Turn((), 7)

    events = tail_events(request, "visitor", "local", "orders", turns())
    assert "event: passed" in await anext(events)
    console.door.logins.close(cookie)
    assert "The login is over" in await anext(events)
    assert [one async for one in events] == []
    assert not console.streams
