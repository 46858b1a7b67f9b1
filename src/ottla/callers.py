"""Who calls an async object: a task, or the thread that waits for the task of a blocking twin.

A twin runs every call as a task of its own, which says nothing about who made it. So the portal
leaves the thread in the context of that task.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import TypeAlias

Caller: TypeAlias = asyncio.Task[object] | threading.Thread

WAITING: ContextVar[threading.Thread | None] = ContextVar("ottla_waiting_thread", default=None)
"""The thread that waits for the current task."""


def current_caller() -> Caller | None:
    """Who called; None outside of tasks."""
    return WAITING.get() or asyncio.current_task()


def has_ended(caller: Caller) -> bool:
    """Whether it can do nothing any more."""
    if isinstance(caller, threading.Thread):
        return not caller.is_alive()
    return caller.done()
