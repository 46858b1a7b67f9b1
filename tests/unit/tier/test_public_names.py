"""`ottla.tier.catalogue` offers its names without loading them."""

from __future__ import annotations

import inspect

import pytest

from ottla.tier import catalogue


def test_names_are_found_where_they_live() -> None:
    assert dir(catalogue) == sorted(catalogue.__all__)
    for name in catalogue.__all__:
        found = getattr(catalogue, name)
        assert inspect.getdoc(found), name
        if inspect.isclass(found):
            assert found.__module__ == catalogue._HOMES[name], name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        catalogue.Nothing  # noqa: B018  # on purpose
