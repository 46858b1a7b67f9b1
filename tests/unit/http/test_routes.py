"""Which handler is called, and what is said where there is none."""

from __future__ import annotations

import asyncio

import pytest

from ottla.http.callers import with_token
from ottla.http.messages import Answer, Refused, Request
from ottla.http.routes import Routes


async def show(request: Request) -> Answer:
    return Answer.json(200, {"path": request.path, **request.parameters})


ROUTES = Routes({"GET /": show, "GET /subjects/{subject}": show, "PUT /subjects/{subject}": show})


def answer(request: Request) -> Answer:
    return asyncio.run(ROUTES.answer(request))


def test_a_segment_in_braces_takes_any_text() -> None:
    found = answer(Request("GET", ("subjects", "a/b")))
    assert found.body == b'{"path": "/subjects/a/b", "subject": "a/b"}\n'


def test_head_is_answered_as_get_is() -> None:
    assert answer(Request("HEAD", ("",))).status == 200


def test_another_path_is_told_where_something_is() -> None:
    with pytest.raises(Refused, match=r"try /, /subjects/\{subject\}") as refused:
        answer(Request("GET", ("subject",)))
    assert refused.value.answer.status == 404


def test_another_method_is_told_which_there_are() -> None:
    with pytest.raises(Refused, match="GET, PUT") as refused:
        answer(Request("DELETE", ("subjects", "a")))
    assert refused.value.answer.status == 405
    assert refused.value.answer.headers == (("Allow", "GET, PUT"),)


@pytest.mark.parametrize("route", ["/x", "get /x", "GET x", "GET"])
def test_a_route_has_a_method_and_a_path(route: str) -> None:
    with pytest.raises(ValueError, match="METHOD /path"):
        Routes({route: show})


CHECKED = with_token("secret", show)


@pytest.mark.parametrize("header", ["Bearer secret", "bearer secret"])
def test_case_96_the_token_opens(header: str) -> None:
    request = Request("GET", ("",), headers={"authorization": header})
    assert asyncio.run(CHECKED(request)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer other"},
        {"authorization": "Bearer secret2"},
        {"authorization": "Bearer"},
        {"authorization": "Basic secret"},
        {"authorization": "secret"},
        {"authorization": "Bearer \xe9"},
    ],
)
def test_case_96_nothing_else_does(headers: dict[str, str]) -> None:
    with pytest.raises(Refused, match="Bearer TOKEN") as refused:
        asyncio.run(CHECKED(Request("GET", ("",), headers=headers)))
    assert refused.value.answer.status == 401
    assert refused.value.answer.headers[0][0] == "WWW-Authenticate"
