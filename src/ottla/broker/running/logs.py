"""Log lines of a broker on stderr, as text or as JSON; those of one node of several name it."""

from __future__ import annotations

import json
import logging
import time
from typing import Final

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, node_id: int | None = None) -> None:
        super().__init__()
        self._node = {} if node_id is None else {"node": node_id}

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            **self._node,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(log_format: str, level: str, node_id: int | None = None) -> None:
    """One of `FORMATS` and one of `LEVELS`."""
    node = "" if node_id is None else f"node={node_id} "
    text = logging.Formatter(f"%(asctime)s %(levelname)s {node}%(name)s: %(message)s")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(node_id) if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
