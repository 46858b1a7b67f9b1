"""Streams without async: `ottla.sync.connect` and the classes it leads to.

>>> from ottla.sync import connect
>>> from ottla.streams import ConsumerOptions, FileOptions
>>> with connect("file://./orders.ss", FileOptions(create="if_missing")) as streamer:
...     with streamer.producer("orders") as producer:
...         print(producer.send(b"one").wait().seq)
...     with streamer.consumer("orders", options=ConsumerOptions(reset="earliest")) as consumer:
...         print(consumer.next(timeout=5).payload)
1
b'one'

Options, messages and errors are those of `ottla.streams`. A consumer may be used by several
threads; with `auto_commit=NEXT` by one, because a call for the next message says that the caller is
done with the last.
"""

from __future__ import annotations

from ottla.sync.streams.consumer import Consumer
from ottla.sync.streams.delivery import Delivery
from ottla.sync.streams.producer import Producer
from ottla.sync.streams.streamer import Streamer, connect

__all__ = ["Consumer", "Delivery", "Producer", "Streamer", "connect"]
