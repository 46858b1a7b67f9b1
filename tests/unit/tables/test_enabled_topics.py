"""Which topics are kept as tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from ottla.tables.errors import BadTableSetting
from ottla.tables.topics import enabled_topics

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin

KEYS = {
    "plain": {},
    "wrong": {"ottla.table.enable": "true", "ottla.table.value.format": "json"},
    "right": {"ottla.table.enable": "true"},
}


class Topics:
    """An admin client of a broker with `KEYS`."""

    async def list_topics(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in KEYS]

    async def describe_configs(self, _: str, name: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=key, value=value) for key, value in KEYS[name].items()]


ADMIN = cast("Admin", Topics())


async def test_a_topic_with_wrong_settings_keeps_no_other_from_being_found() -> None:
    refused: list[BadTableSetting] = []
    found = await enabled_topics(ADMIN, None, {}, refuse=refused.append)
    assert list(found) == ["right"]
    [error] = refused
    assert "topic 'wrong'" in str(error)


async def test_who_asks_for_them_by_hand_is_told_at_once() -> None:
    with pytest.raises(BadTableSetting, match="topic 'wrong'"):
        await enabled_topics(ADMIN, None, {})
