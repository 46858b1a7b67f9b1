"""What `import ottla` costs and offers."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from types import ModuleType

import pytest

import ottla
from ottla import sync
from ottla.client.admin.admin import Admin
from tests.support.junk import public_calls

TYPES = ["admin.types", "admin.resets", "producer.types", "reader.types", "share.types"]


def test_names_are_found_where_they_live() -> None:
    assert ottla.Admin is Admin
    for name in ottla.__all__:
        found = getattr(ottla, name)
        assert inspect.getdoc(found), name
        if not isinstance(found, ModuleType):
            assert found.__module__ == ottla._HOMES[name], name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        ottla.Nothing  # noqa: B018  # on purpose


def test_completion_shows_the_names_and_nothing_else() -> None:
    assert dir(ottla) == sorted(["__version__", *ottla.__all__])
    assert {"Admin", "Consumer", "Security", "ShareRecord", "errors", "streams"} <= {*dir(ottla)}
    assert dir(sync) == sorted(sync.__all__)


@pytest.mark.parametrize(
    "kind", [ottla.Admin, ottla.Producer, ottla.Reader, ottla.ShareConsumer, ottla.ShareWorker]
)
def test_what_a_call_returns_can_be_annotated(kind: type) -> None:
    inner = {
        name
        for module in TYPES
        for name, found in vars(import_module(f"ottla.client.{module}")).items()
        if inspect.isclass(found) and not issubclass(found, Exception)
    }
    for name, function in public_calls(kind):
        words = set(re.findall(r"\w+", str(inspect.signature(function).return_annotation)))
        assert words & inner <= {*ottla.__all__}, name
