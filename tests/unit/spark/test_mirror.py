"""Offsets saved in the background."""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientError
from ottla.spark.errors import BadOption, NotSaved
from ottla.spark.log.hooks import hook_name, settled_hook
from ottla.spark.log.mirror import Mirror

if TYPE_CHECKING:
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


def test_case_47_where_saving_is_required_an_outage_ends_the_query() -> None:
    def save(offsets: Offsets) -> None:
        raise ClientError("nobody is there")

    mirror = Mirror(save, "a store", required=True)
    mirror.save(at(1))
    mirror.close()
    with pytest.raises(NotSaved, match=r"not saved in a store: nobody is there; repair the store"):
        mirror.save(at(2))


class Strange(BaseException):
    """Neither an error of ours nor of a client."""


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), Strange("odd")])
def test_no_error_ends_the_saving_and_the_same_offsets_are_tried_again(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    saved: list[Offsets] = []
    broken = True

    def save(offsets: Offsets) -> None:
        if broken:
            raise error
        saved.append(offsets)

    mirror = Mirror(save, "postgresql://me:planted-secret@host/db")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            mirror.save(at(1))
            mirror.flush()
    # An outage is told once.
    assert caplog.text.count(f"offsets are not saved in postgresql://me:***@host/db: {error}") == 1
    assert "planted-secret" not in caplog.text
    broken = False
    mirror.save(at(1))
    mirror.flush()
    assert saved == [at(1)]
    mirror.close()


def test_where_saving_is_required_an_error_of_a_driver_ends_the_query() -> None:
    def save(offsets: Offsets) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    mirror = Mirror(save, "a store", required=True)
    mirror.save(at(1))
    with pytest.raises(NotSaved, match="disk I/O error; repair the store"):
        mirror.flush()
    with pytest.raises(NotSaved, match="disk I/O error; repair the store"):
        mirror.save(at(2))
    mirror.close()


def test_flush_waits_for_the_save_but_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    saved: list[Offsets] = []
    go = threading.Event()

    def save(offsets: Offsets) -> None:
        go.wait(10)
        saved.append(offsets)

    mirror = Mirror(save, "a store")
    mirror.save(at(1))
    with caplog.at_level(logging.WARNING):
        mirror.flush(0.01)
    assert "not saved in a store yet after 0.01 s" in caplog.text
    go.set()
    mirror.flush()
    assert saved == [at(1)]
    mirror.close()


TOLD: list[object] = []


def tell(offsets: object) -> None:
    TOLD.append(offsets)
    if offsets == {"t": {"0": 1}}:
        raise KeyError("seven")


def test_case_47_a_function_is_told_and_what_it_raises_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "their_hooks", sys.modules[__name__])
    TOLD.clear()
    for offset in (1, 2):
        mirror = Mirror(settled_hook("their_hooks:tell"), "their_hooks:tell")
        mirror.save(at(offset))
        mirror.close()
    # After a crash a new process begins with what the last one may have told already.
    mirror = Mirror(settled_hook("their_hooks:tell"), "their_hooks:tell")
    mirror.save(at(2))
    mirror.close()
    assert TOLD == [{"t": {"0": 1}}, {"t": {"0": 2}}, {"t": {"0": 2}}]
    assert "not saved in their_hooks:tell: KeyError: 'seven'" in caplog.text


@pytest.mark.parametrize("name", ["no.such.module:f", "json:no_such_function"])
def test_a_function_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(BadOption, match=f"onSettled={name} cannot be loaded"):
        settled_hook(name)


@pytest.mark.parametrize("name", ["", "f", "m:", "m:f()", "m f"])
def test_a_function_is_named_by_its_module(name: str) -> None:
    with pytest.raises(BadOption, match="onSettled is module:function"):
        hook_name(name)
