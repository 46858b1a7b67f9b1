"""Java as the judge of names: RFC 2253 texts and mapping rules (cases 10 and 11)."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from ottla.security.errors import BadSecuritySetting
from ottla.security.principal import MappingRules, subject_of
from tests.support.jvm import QUICK_START, java_command, own_classpath, run, why_no_jvm
from tests.support.subjects import KNOWN, random_subjects
from tests.unit.security.test_principal import DOCUMENTED, MAPPED

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(why_no_jvm() is not None, reason=str(why_no_jvm())),
]


def asked(lines: list[str]) -> list[str | None]:
    """Java's answers; None for an exception."""
    command = java_command("Names", classpath=own_classpath(), options=QUICK_START)
    done = run(command, "".join(f"{line}\n" for line in lines), 120)
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stderr
    return [b64decode(one[1:]).decode() if one.startswith("=") else None for one in answers]


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_10_subjects_have_javas_text() -> None:
    certificates = [*KNOWN.values(), *random_subjects(500, seed=10)]
    answers = asked([f"subject {b64encode(der).decode()}" for der in certificates])
    ours = [subject_of(der) for der in certificates]
    different = [pair for pair in zip(ours, answers, strict=True) if pair[0] != pair[1]]
    assert different == []


def mapped(rules: str, name: str) -> str | None:
    try:
        return MappingRules.parse(rules).apply(name)
    except BadSecuritySetting:
        return None


def test_11_rules_map_as_kafkas_do() -> None:
    cases = [(rules, name) for rules, name, _ in MAPPED if rules]
    cases += [(DOCUMENTED, name) for name in KNOWN if name]
    cases += [(f"RULE:^CN=([^,]*).*$/{new}/", "CN=alice,OU=x") for new in ("$1$1", "\\$1", "$")]
    cases += [(rule, "CN=alice") for rule in ("default", "DEFAULT/L", "RULE:CN=(.*)/$1/X")]
    answers = asked([f"map {base64(rules)} {base64(name)}" for rules, name in cases])
    different = [
        (rules, name, mapped(rules, name), answer)
        for (rules, name), answer in zip(cases, answers, strict=True)
        if mapped(rules, name) != (answer or None)  # an empty name closes the connection here
    ]
    assert different == []
