"""What a sender has to know of transactions; see `transaction_shell` for who says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.errors import ClientError


class Gate(Protocol):
    """A transaction, as far as the sender has to know of it."""

    def ticket(self) -> int:
        """What a call needs to hand records over; raises where no transaction is open."""
        ...

    def check(self, ticket: int) -> None:
        """Raise unless the transaction of the ticket still takes records."""
        ...

    def admit(self, ready: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that may be sent to; `changed` is called when the others may be, too."""
        ...

    def failed(self, error: ClientError) -> ClientError:
        """Records are not written; what those who wait for them are to be told."""
        ...
