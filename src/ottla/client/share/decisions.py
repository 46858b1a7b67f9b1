"""What a caller says of the records it was given, in words and on rows of a table too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.share.types import Kind, ShareRecord, WrongAckMode

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.share.acks import Ledger

KINDS: Final = {
    "accept": Kind.ACCEPT,
    "release": Kind.RELEASE,
    "reject": Kind.REJECT,
    "renew": Kind.RENEW,
}


def decide(ledger: Ledger, what: ShareRecord | pa.RecordBatch | pa.Table, kind: str) -> None:
    """Enter the caller's word on a record, or on rows."""
    arguments.choice("kind", kind, KINDS)
    if isinstance(what, ShareRecord):
        ledger.acknowledge(what.delivery, what.offset, KINDS[kind])
        return
    if type(what).__module__.partition(".")[0] != "pyarrow":
        wanted = "a ShareRecord of poll, or rows of poll_arrow"
        raise arguments.wrong_type("what", wanted, what)
    from ottla.client.share.arrow import runs

    for partition, first, end in runs(what):
        ledger.acknowledge_range(partition, first, end, KINDS[kind])


def wrong_mode(what: str) -> WrongAckMode:
    """The error for a call that needs the explicit mode."""
    return WrongAckMode(
        "in implicit mode the next poll accepts all records; open the consumer with "
        f'ack_mode="explicit" to {what}'
    )
