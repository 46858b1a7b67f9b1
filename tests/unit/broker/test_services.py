"""The registry of services: what handlers ask for exists, and order holds when one fails."""

from __future__ import annotations

import ast
import inspect

import pytest

from ottla.broker.running.services import Services
from ottla.broker.serving.apis import SERVED, handler_of, services_of


def declared() -> dict[str, str]:
    """Service by service, the type as `Services` writes it down."""
    tree = ast.parse(inspect.getsource(Services))
    return {
        node.target.attr: ast.unparse(node.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
    }


@pytest.mark.parametrize("api_key", SERVED)
def test_handlers_ask_for_services_that_there_are(api_key: int) -> None:
    """The dispatcher looks services up by name, where mypy does not see it."""
    handler = handler_of(api_key)
    parameters = inspect.signature(handler).parameters
    asked = {name: parameters[name].annotation for name in services_of(handler)}
    assert asked == {name: declared()[name] for name in asked}
