"""An error of a query as one sentence, and whether a retry can help.

Spark wraps what a Python source raises into several layers of text; the sentence is in the last
line of the innermost traceback.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LONGEST: Final = 500

# Errors of the query itself: option, name, type, plan.
_FOR_GOOD_TYPES: Final = frozenset(
    {"AnalysisException", "ParseException", "IllegalArgumentException", "DefinitionError"}
)
_FOR_GOOD_TEXTS: Final = (
    *(
        "BadOption",
        "BadSchema",
        "BadCheckpoint",
        "DataLoss",
        "PySparkTypeError",
        "PySparkAttributeError",
    ),
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH",
    "SCHEMA_NOT_COMPATIBLE",  # of keys or values in the state of a flow
)
# A corrupted map in Spark (see `session.register`): Spark can send no task any more, although the
# JVM looks healthy.
_BROKEN_SESSION: Final = re.compile(r"Illegal size \d+ of collection, expected \d+")
_PYTHON: Final = re.compile(r"^((?:\w+\.)*([A-Z]\w+)): (.+)$", re.MULTILINE)
_JVM_NOISE: Final = re.compile(r"at |\.\.\. \d+ more|An error occurred while calling")


class Failure(NamedTuple):
    """Why a flow does not run."""

    sentence: str
    for_good: bool
    breaks_session: bool = False


def explain(error: BaseException) -> Failure:
    """The message of an error, and whether a retry cannot fix it."""
    text = str(error)
    kind = type(error).__name__
    for_good = kind in _FOR_GOOD_TYPES or any(one in text for one in _FOR_GOOD_TEXTS)
    broken = _BROKEN_SESSION.search(text) is not None
    return Failure(_sentence(text, kind) + _hint(text), for_good and not broken, broken)


def _sentence(text: str, kind: str) -> str:
    raised = [
        one
        for one in _PYTHON.finditer(text)
        if one[1].startswith("ottla.") or one[2].endswith(("Error", "Exception"))
    ]
    if raised:
        ours = [one for one in raised if one[1].startswith("ottla.")]
        said = ours[-1][3] if ours else f"{raised[-1][2]}: {raised[-1][3]}"
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        kept = [line for line in lines if not _JVM_NOISE.match(line)]
        said = kept[0].removeprefix(": ") if kept else kind
    said = " ".join(said.split())
    return said if len(said) <= LONGEST else said[: LONGEST - 3] + "..."


def _hint(text: str) -> str:
    if "UNSUPPORTED_STREAMING_OPERATOR" in text or "output mode" in text.lower():
        return " (give the flow another mode=: append, update or complete)"
    if "DATA_SOURCE_NOT_FOUND" in text or "NotFoundError: No " in text:
        return " (the Python that Spark runs needs pip install 'ottla[spark]')"
    return ""
