"""Values and errors of the Consumer's interface."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ottla.client.errors import ClientError, KafkaError

Protocol: TypeAlias = Literal["consumer", "classic"]
OffsetReset: TypeAlias = Literal["earliest", "latest", "error"]


class NoOffset(ClientError):
    """The group has committed nothing for a partition, and `auto_offset_reset` is "error"."""


class CommitFailed(KafkaError):
    """The group has moved on without this member: others may read these records again."""

    @property
    def hint(self) -> str:
        """How to go on."""
        return "poll again to rejoin; raise max_poll_interval if work on one batch takes longer"
