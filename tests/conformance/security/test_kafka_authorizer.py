"""Kafka's own authorizer as the judge of ours: 2,000 random sets of ACLs, the same answers.

Case 49 of the specification of security.
"""

from __future__ import annotations

import json
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.access.authorizer import Authorizer
from ottla.metadata.security.acls import (
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    canonical_host,
)
from tests.support.jvm import QUICK_START, java_command, own_classpath

if TYPE_CHECKING:
    from collections.abc import Iterator

SETS = 2000
NAMES = ["a", "ab", "abc", "b", "hardcode", "h", "*"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "User:root"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]
RESOURCES = [Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID]
OPERATIONS = [
    Operation.ALL,
    Operation.READ,
    Operation.WRITE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[subprocess.Popen[str]]:
    command = java_command("AclOracle", classpath=own_classpath(), options=QUICK_START)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8") as process:
        try:
            yield process
        finally:
            process.kill()


def _random_acl(choose: random.Random) -> Acl:
    return Acl(
        choose.choice(RESOURCES),
        choose.choice(list(Pattern)),
        choose.choice(NAMES),
        choose.choice(PRINCIPALS[:3]),
        choose.choice(HOSTS),
        choose.choice(OPERATIONS),
        choose.choices(list(Permission), (1, 2))[0],
    )


def _questions(choose: random.Random) -> list[tuple[Any, ...]]:
    """The last one is about any name."""
    named = [
        (
            choose.choice(PRINCIPALS[:2] + PRINCIPALS[3:]),
            choose.choice(HOSTS[:2]),
            choose.choice(OPERATIONS[1:]),
            choose.choice(RESOURCES),
            choose.choice(["a", "ab", "abcd", "b", "c", "hardcode"]),
        )
        for _ in range(12)
    ]
    anywhere = ("User:alice", "10.0.0.1", choose.choice(OPERATIONS[1:]), Resource.TOPIC)
    return [*named, anywhere]


def _ours(acls: frozenset[Acl], questions: list[tuple[Any, ...]], *, everyone: bool) -> str:
    authorizer = Authorizer(acls, super_users=["User:root"], everyone=everyone)
    answers = []
    for principal, host, operation, resource, *name in questions:
        access = authorizer.access(principal, canonical_host(host))
        if name:
            answers.append(access.may(operation, resource, name[0]))
        else:
            answers.append(access.may_on_any(operation, resource))
    return "".join("1" if allowed else "0" for allowed in answers)


@pytest.mark.jvm
def test_49_random_sets_of_acls_decide_as_in_kafka(oracle: subprocess.Popen[str]) -> None:
    choose = random.Random(49)
    assert oracle.stdin is not None
    assert oracle.stdout is not None
    allowed = 0
    for number in range(SETS):
        acls = frozenset(_random_acl(choose) for _ in range(choose.randrange(9)))
        questions = _questions(choose)
        everyone = number % 4 == 0
        request = {"everyone": everyone, "acls": sorted(acls), "questions": questions}
        oracle.stdin.write(json.dumps(request) + "\n")
        oracle.stdin.flush()
        theirs = oracle.stdout.readline().strip()
        assert _ours(acls, questions, everyone=everyone) == theirs, (number, request)
        allowed += theirs.count("1")
    assert SETS < allowed < SETS * 12  # both answers are common
