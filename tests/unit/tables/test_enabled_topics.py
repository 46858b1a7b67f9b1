"""Which topics are kept as tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from ottla.client.errors import TopicAuthorizationFailed, kafka_error
from ottla.tables.errors import BadTableSetting
from ottla.tables.topics import enabled_topics
from ottla.wire.error_codes import ErrorCode

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


class Changing(Topics):
    """One topic is deleted after it was listed, another may be listed and not described."""

    async def describe_configs(self, kind: str, name: str) -> list[SimpleNamespace]:
        if name == "plain":
            raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "describe")
        if name == "wrong":
            raise kafka_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "describe")
        return await super().describe_configs(kind, name)


async def test_topics_that_vanish_or_may_not_be_seen_keep_no_other_from_being_found() -> None:
    """Fault: a worker without the right to one topic served none."""
    admin = cast("Admin", Changing())
    refused: list[BadTableSetting] = []
    assert list(await enabled_topics(admin, None, {}, refuse=refused.append)) == ["right"]
    [error] = refused
    assert "topic 'wrong'" in str(error)
    assert list(await enabled_topics(admin, None, {})) == ["right"]
    with pytest.raises(TopicAuthorizationFailed):
        await enabled_topics(admin, ["wrong"], {})
