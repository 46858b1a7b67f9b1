"""The table worker as a child of a broker: `python -m ottla.tables`.

Its standard input begins with a line of JSON: the broker's `bootstrap`, `security` as a client's
properties, and the `warehouse` with its `options`, `catalog`, `namespace`, `nice`, `registry` and
`tier` of the worker. The end of the input means that the broker is gone. It prints nothing to
standard output.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from dataclasses import replace
from typing import Any, Final

MAX_LINE: Final = 1024 * 1024
"""Settings with keys and certificates as text have some 20 KiB."""


def main() -> int:
    line = sys.stdin.buffer.raw.readline(MAX_LINE)  # type: ignore[union-attr]  # a pipe has one
    if not line.endswith(b"\n"):
        print(
            "ottla table worker: started without settings; `ottla table run` runs it by hand",
            file=sys.stderr,
        )
        return 2
    told = json.loads(line)
    logging.basicConfig(format="ottla table worker: %(message)s", level=logging.WARNING)
    os.nice(told["nice"])
    from ottla.errors import OttlaError
    from ottla.redaction import redact

    try:
        asyncio.run(_until_told(told))
    except (OttlaError, OSError) as error:
        print(f"ottla table worker: {redact(error)}", file=sys.stderr)
        return 1
    return 0


async def _until_told(told: dict[str, Any]) -> None:
    task = asyncio.ensure_future(_work(told))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    loop.add_reader(sys.stdin.fileno(), _hear, task)
    try:
        await task
    except asyncio.CancelledError:
        return


def _hear(task: asyncio.Future[None]) -> None:
    """Nothing more is said: what can be read is the end."""
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    task.cancel()


async def _work(told: dict[str, Any]) -> None:
    from ottla.client.security import PLAINTEXT, Security
    from ottla.tables.memory import give_back
    from ottla.tables.settings import worker_settings
    from ottla.tables.worker import Worker

    give_back()

    security = PLAINTEXT
    if told["security"]:
        # The listener was allowed to start; the address is the broker's own.
        security = replace(
            Security.from_properties(told["security"]), allow_plaintext_password=True
        )
    settings = worker_settings(
        told["warehouse"],
        told["catalog"],
        told["namespace"],
        told["options"],
        told["registry"],
        told["tier"],
    )
    async with Worker(told["bootstrap"], settings, security=security) as worker:
        await worker.run()


if __name__ == "__main__":
    sys.exit(main())
