"""The supervisor of `EmbeddedBroker(processes=True)`: `python -m ottla.testing.supervised`.

The first line of its standard input says what to run, as JSON; so no password is in an argument or
in the environment. It answers with one line: `{}` when all nodes serve, or `{"refused": why}`. The
end of its input stops it, so nothing is left behind when the test dies.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ottla.broker.running.logs import set_up_logging
from ottla.broker.running.refusals import refusal_of
from ottla.broker.running.supervisor import Setup, run_nodes
from ottla.metadata.config.broker import BrokerConfig

FORMAT, LEVEL = "text", "warning"


def main() -> None:
    given = json.loads(sys.stdin.buffer.readline())
    set_up_logging(FORMAT, LEVEL)
    path = Path(given["path"])
    setup = Setup(given["nodes"], path, FORMAT, LEVEL, ephemeral=given["ephemeral"])
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    try:
        status = run_nodes(BrokerConfig(given["config"]), setup, lambda _: _answer({}))
    except Exception as error:
        refused = refusal_of(error, path)
        if refused is None:
            raise
        _answer({"refused": refused.text})
        status = refused.status
    raise SystemExit(status)


def _answer(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _stop_at_end_of_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
