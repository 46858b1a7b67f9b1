"""Every acceptance case of security has a test with its number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
CASES: Final = range(1, 116)
PLACES: Final = (
    "unit/security",
    "unit/broker/test_{audit,authorizer,certificates,credentials,listeners,lobby,oauth}.py",
    "unit/broker/test_{quotas,throttling}.py",
    "unit/client/test_security.py",
    "unit/spark/test_secrets.py",
    "integration/security",
    "integration/broker/test_{monitoring,quotas}.py",
    "integration/client/test_{admin_security,https,secure_connection}.py",
    "integration/cli/test_security.py",
    "conformance/security",
    "conformance/test_security_names_java.py",
    "faults/test_strangers.py",
    "spark/test_security.py",
)
"""Other specifications have cases with the same numbers."""
ELSEWHERE: Final = {115: "faults/test_kill.py"}
"""Part of a test that is about more."""
_NAME: Final = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
_FIRST: Final = re.compile(r"^test_(?:case_)?((?:\d+_(?:and_|to_)?)+)")
_LATER: Final = re.compile(r"cases?_((?:\d+_?(?:and_|to_)?)+)")


def numbers(name: str) -> set[int]:
    found = [*_FIRST.findall(name), *_LATER.findall(name)]
    return {int(number) for some in found for number in re.findall(r"\d+", some)}


def files_of(place: str) -> list[Path]:
    if not place.endswith(".py"):
        return list((TESTS / place).glob("*.py"))
    head, _, rest = place.partition("{")
    if not rest:
        return [TESTS / place]
    names, _, tail = rest.partition("}")
    return [TESTS / f"{head}{name}{tail}" for name in names.split(",")]


def test_every_case_has_a_test() -> None:
    assert numbers("test_case_26_and_28_made_up") == {26, 28}
    assert numbers("test_111_72_43_the_tools") == {111, 72, 43}
    assert numbers("test_a_new_key_case_40") == {40}
    files = [file for place in PLACES for file in files_of(place)]
    shown = {n for file in files for name in _NAME.findall(file.read_text()) for n in numbers(name)}
    for case, file in ELSEWHERE.items():
        assert f"case {case} of the security specification" in (TESTS / file).read_text()
    assert set(CASES) - shown == set(ELSEWHERE)
