"""The clients for scripts and notebooks: every async class as a synchronous twin of the same name.

>>> from ottla.sync import Producer
>>> with Producer("127.0.0.1:9092") as producer:
...     print(producer.send("orders", key=b"k", value=b"v").offset)
3

Rules:

- A twin has the names, arguments and texts of its async class: the modules of the twins are made by
  scripts/generate_sync.py. The code that runs is that of the async class, in one event loop that
  all twins of the process share, on a thread of its own. So twins work beside a running event loop
  (a notebook's), and may be used by several threads.
- Ctrl-C cancels the call that waits, as a task of the async class would be cancelled.
- A twin belongs to the process it was made in; after a fork it raises `WrongPlace`.
- A program that ends without a close is not held up. What was not acknowledged by then is not.
- `connect` is the way to streams over Kafka, Redis, files and pipes: `ottla.sync.streams`.
- Callbacks are called on the thread of the event loop, and cannot call a twin.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.errors import WrongPlace
    from ottla.sync.admin import Admin
    from ottla.sync.consumer import Consumer
    from ottla.sync.producer import Producer
    from ottla.sync.reader import Reader
    from ottla.sync.schema_registry import SchemaRegistry
    from ottla.sync.share_consumer import ShareConsumer
    from ottla.sync.streams.streamer import connect
    from ottla.sync.transaction import Transaction

__all__ = [
    "Admin",
    "Consumer",
    "Producer",
    "Reader",
    "SchemaRegistry",
    "ShareConsumer",
    "Transaction",
    "WrongPlace",
    "connect",
]

_HOMES = {
    "Admin": "ottla.sync.admin",
    "Consumer": "ottla.sync.consumer",
    "Producer": "ottla.sync.producer",
    "Reader": "ottla.sync.reader",
    "SchemaRegistry": "ottla.sync.schema_registry",
    "ShareConsumer": "ottla.sync.share_consumer",
    "Transaction": "ottla.sync.transaction",
    "WrongPlace": "ottla.client.errors",
    "connect": "ottla.sync.streams.streamer",
}


def __getattr__(name: str) -> object:
    """Names are imported when they are first used: a Producer does not need the Arrow extra."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'ottla.sync' has no attribute {name!r}") from None
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
