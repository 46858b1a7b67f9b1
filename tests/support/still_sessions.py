"""Sessions of a broker of this process that do not end, however slow the machine is.

Clients are told how long their session lasts, and authenticate again by timers of their own. A
machine that stands still for a moment would end a short session; what such a client does is then
another test's matter.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from ottla.broker.access import authentication
from ottla.broker.access.door import Door
from ottla.broker.access.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.serving.context import Peer


@contextmanager
def still_sessions() -> Iterator[Counter[int]]:
    """How often each connection has logged in, by its number."""
    logins: Counter[int] = Counter()
    succeeded = Door.succeeded

    def noted(door: Door, peer: Peer) -> None:
        logins[peer.connection_id] += 1
        succeeded(door, peer)

    with (
        mock.patch.object(Guard, "now", return_value=1000.0),
        mock.patch.object(authentication, "MIN_REAUTH_SECONDS", 0.0),
        mock.patch.object(Door, "succeeded", noted),
    ):
        yield logins
