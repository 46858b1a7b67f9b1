"""Whether a remote segment belongs to the history of a log, by leader epochs. Pure.

After an unclean election the remote tier may hold segments whose records the log never had. A
segment is of the log's lineage if every epoch it has, from the log's first on, is one of the log's,
begins where the log says (the first may begin later, where the segment does), is followed by the
epoch that follows it in the log, and if the segment ends before the next epoch and before the log.
Epochs without records say nothing and are left out first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ottla.tier.catalogue.segments import EpochStart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata


def with_records(epochs: Iterable[tuple[int, int]]) -> list[EpochStart]:
    """The epochs that wrote something: those that do not begin where the next one does."""
    entries = [EpochStart(*pair) for pair in epochs]
    kept = [one for one, following in pairwise(entries) if one[1] != following[1]]
    return kept + entries[-1:]


def is_within_lineage(
    metadata: RemoteLogSegmentMetadata, lineage: Sequence[tuple[int, int]], log_end_offset: int
) -> bool:
    """Whether the log's own records are in the segment."""
    epochs = with_records(lineage)
    if not epochs or metadata.end_offset >= log_end_offset:
        return False
    starts = dict(epochs)
    segment = with_records(metadata.leader_epochs)
    first = epochs[0].epoch
    if not first <= segment[-1].epoch <= epochs[-1].epoch:
        return False
    known = [one for one in segment if one.epoch >= first]
    if any(one.epoch not in starts for one in known):
        return False
    oldest = known[0]
    if oldest.epoch != first and oldest.start_offset < starts[oldest.epoch]:
        return False
    if any(one.start_offset != starts[one.epoch] for one in known[1:]):
        return False
    order = [one.epoch for one in epochs]
    at = order.index(oldest.epoch)
    if order[at : at + len(known)] != [one.epoch for one in known]:
        return False
    after = epochs[at + len(known) : at + len(known) + 1]
    return not after or metadata.end_offset < after[0].start_offset
