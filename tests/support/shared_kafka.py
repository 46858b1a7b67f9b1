"""One Apache Kafka for a whole run of the tests, whichever worker needs it first.

Rules:

- `directory` is common to the workers of the run and to nobody else. A lock in it decides who
  starts the broker; the file `bootstrap` says where it listens.
- Each user holds the file `users` locked as a reader. The worker that has started the broker stops
  it when it can lock that file as the only one, so when the last user is gone, also by a crash.
- If the worker that started it is killed, the broker ends with it, as any `ApacheKafka` does.
- Tests share it: names come from `tests.support.names.fresh`, and nobody changes its settings or
  asserts about everything there is. A test that needs that starts an `ApacheKafka` of its own.
"""

from __future__ import annotations

import fcntl
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from tests.support.jvm import ApacheKafka
from tests.support.raw_transactions import CONFIG as TRANSACTIONS
from tests.support.share_member import SHARE_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG: Final = {
    **SHARE_CONFIG,  # locks and sessions as short as a test wants them
    **TRANSACTIONS,
    "share.coordinator.state.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "100",
    "auto.create.topics.enable": "false",
}
QUICK: Final = ("-XX:TieredStopAtLevel=1",)


@contextmanager
def shared_kafka(directory: Path) -> Iterator[str]:
    """The bootstrap address of the broker of this run."""
    place = directory / "bootstrap"
    with (directory / "users").open("w") as users, ExitStack() as own:
        with _alone(directory):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not place.exists():
                kafka = own.enter_context(
                    ApacheKafka(heap="512m", config=CONFIG, jvm_options=QUICK)
                )
                place.write_text(kafka.bootstrap)
                own.callback(_wait_for_others, directory, users)
            bootstrap = place.read_text()
        yield bootstrap


def _wait_for_others(directory: Path, users: TextIO) -> None:
    with _alone(directory):
        (directory / "bootstrap").unlink()  # a worker that comes now starts another
    fcntl.flock(users, fcntl.LOCK_EX)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
