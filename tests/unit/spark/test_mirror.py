"""Offsets saved in the background."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ottla.client.cluster_view import TopicPartition
from ottla.client.errors import ClientError
from ottla.spark.mirror import Mirror

if TYPE_CHECKING:
    import pytest

    from ottla.spark.offsets import Offsets


def at(offset: int) -> Offsets:
    return {TopicPartition("t", 0): offset}


def test_the_newest_offsets_take_the_place_of_those_that_wait() -> None:
    saved: list[Offsets] = []
    busy, go = threading.Event(), threading.Event()

    def save(offsets: Offsets) -> None:
        busy.set()
        go.wait(10)
        saved.append(offsets)

    mirror = Mirror(save, "a store")
    mirror.save(at(1))
    assert busy.wait(10)
    for offset in (2, 3, 3, 4):
        mirror.save(at(offset))
    go.set()
    mirror.close()
    assert saved == [at(1), at(4)]


def test_case_47_an_outage_is_a_warning_and_the_next_save_makes_up_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saved: list[Offsets] = []

    def save(offsets: Offsets) -> None:
        if offsets == at(1):
            raise ClientError("nobody is there")
        saved.append(offsets)

    mirror = Mirror(save, "a store")
    with caplog.at_level(logging.WARNING):
        mirror.save(at(1))
        mirror.close()
    assert "offsets are not saved in a store: nobody is there" in caplog.text
    mirror = Mirror(save, "a store")
    mirror.save(at(2))
    mirror.save(at(2))
    mirror.close()
    assert saved == [at(2)]
