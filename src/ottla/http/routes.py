"""Which function answers which request.

A route is a method and a path, `GET /subjects/{subject}/versions`. A segment in braces matches any
one segment. A path that exists for other methods is refused with 405, any other with 404. HEAD is
answered as GET is, without its body.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.http.messages import Answer, Refused, Request

Handler = Callable[[Request], Coroutine[Any, Any, Answer]]
WILDCARD: Final = "{"


class Routes:
    """A table of handlers by `METHOD /path`."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._by_path: dict[tuple[str, ...], dict[str, Handler]] = {}
        for route, handler in handlers.items():
            method, _, path = route.partition(" ")
            if not method.isupper() or not path.startswith("/"):
                raise ValueError(f"a route is METHOD /path, not {route!r}")
            self._by_path.setdefault(tuple(path[1:].split("/")), {})[method] = handler
        self.names = tuple(handlers)

    async def answer(self, request: Request) -> Answer:
        """Call the handler of the request's route; `Refused` if there is none."""
        for pattern, methods in self._by_path.items():
            parameters = _matched(pattern, request.segments)
            if parameters is None:
                continue
            handler = methods.get("GET" if request.method == "HEAD" else request.method)
            if handler is None:
                allowed = ", ".join(sorted(methods))
                raise Refused(405, f"{request.method} is not one of: {allowed}", ("Allow", allowed))
            return await handler(replace(request, parameters=parameters))
        paths = ", ".join("/" + "/".join(pattern) for pattern in self._by_path)
        raise Refused(404, f"nothing is here; try {paths}")


def _matched(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    found: dict[str, str] = {}
    for expected, given in zip(pattern, segments, strict=True):
        if expected.startswith(WILDCARD):
            found[expected[1:-1]] = given
        elif expected != given:
            return None
    return found
