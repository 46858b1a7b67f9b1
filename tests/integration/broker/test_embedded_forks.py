"""A forked child beside an embedded broker: it can connect, end, and is told what it cannot do."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
import ottla, ottla.sync

broker = ottla.EmbeddedBroker().start()
broker.create_topic("before")
child = os.fork()
if child == 0:
    try:
        {work}
    except ottla.errors.WrongPlace as error:
        print(error)
    sys.exit(0)
print("ended", os.waitpid(child, 0)[1])
broker.create_topic("after")
print(sorted(one.name for one in ottla.sync.Admin(broker.bootstrap).list_topics()))
broker.stop()
"""


@pytest.mark.parametrize(
    ("work", "says"),
    [
        ("pass", ""),
        ("print(len(ottla.sync.Admin(broker.bootstrap).list_topics()))", "1\n"),
        ("broker.create_topic('x')", "before the process forked"),
        ("broker.start()", "before the process forked"),
        ("broker.stop()", "before the process forked"),
    ],
    ids=["end", "connect", "create_topic", "start", "stop"],
)
def test_a_forked_child(work: str, says: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work=work)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.endswith("ended 0\n['after', 'before']\n"), ended
    assert says in ended.stdout
