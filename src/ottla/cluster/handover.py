"""A log moves from one node of a machine to another: a rename, no bytes are copied.

A move begins with a change of the leader in the metadata, whoever proposes it. The old leader
learns of it and releases the log; the new one learns of it and takes the log up. Until it learns,
the old leader goes on acknowledging: that is in the directory which moves, so nothing is lost. The
directory is always in exactly one place: with a node, or in `handover/`.

Release, in this order (a kill may come after each; the points are what tests kill at):

    LEARNT   appends are refused with NOT_LEADER_OR_FOLLOWER, waiting requests end
    CLOSED   the log is closed cleanly: synced, with its producer snapshot
    NOTED    `handover.json` is durable in the log's directory
    RENAMED  the directory is in `handover/`
    ARRIVED  `handover/` is synced
    LEFT     the old parent is synced, the siblings are woken

Taking, in this order:

    FOUND    the directory is in `handover/`, or a dead sibling's lock is held
    NOTED    a dead sibling's log was recovered where it is, with that node's checkpoints and
             journal, closed cleanly, and released like one of a living node
    RENAMED  the directory is the node's own
    ARRIVED  the own directory is synced
    ENTERED  the offsets of the note are in the node's checkpoints, in memory
    OPENED   the log is opened as after a clean stop

So only a log that was closed cleanly, and is durable, moves. After a kill a node starts with what
it finds (the table of `ottla.cluster.layout`). The rules for notes make every point safe:

* A note stays in the directory after the log was opened. Its offsets only grow during the life of
  a log, so they are lower bounds for a node that was killed before its checkpoint files had them.
  The next release replaces the note.
* Whether a log is trusted never comes from a note of a node's own directory: after a kill all of
  its logs are recovered.
* A log that could not be closed cleanly stays, and the next start of its node recovers and
  releases it: some of its records may be in that node's journal alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Final
from uuid import UUID

from ottla.errors import OttlaError

NOTE: Final = "handover.json"
# Seven numbers and an id; more is not a note.
MAX_NOTE_BYTES: Final = 4_096
FORMAT: Final = 1


class DamagedNote(OttlaError):
    """A note that cannot be read; the log is then opened as after a crash."""


@dataclass(frozen=True, slots=True)
class Note:
    """What the new leader has to know of a log; offsets as in the checkpoint files."""

    topic_id: UUID
    leader_epoch: int
    recovery_point: int
    high_watermark: int
    log_start_offset: int
    first_dirty: int
    """How far it has been compacted."""
    clean: bool

    def encode(self) -> bytes:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["topic_id"] = str(self.topic_id)
        return json.dumps({"format": FORMAT, **values}).encode()


def decode_note(data: bytes) -> Note:
    if len(data) > MAX_NOTE_BYTES:
        raise DamagedNote(f"{NOTE}: {len(data)} bytes, at most {MAX_NOTE_BYTES} expected")
    try:
        values = json.loads(data)
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise DamagedNote(f"{NOTE}: not of format {FORMAT}")
        topic_id = UUID(values.pop("topic_id"))
        clean = values.pop("clean")
        numbers = {each.name for each in fields(Note)} - {"topic_id", "clean"}
        if type(clean) is not bool or values.keys() != numbers:
            raise DamagedNote(f"{NOTE}: fields missing or unknown")
        if any(type(one) is not int or one < 0 for one in values.values()):
            raise DamagedNote(f"{NOTE}: a number of 0 or above expected in each field")
        return Note(topic_id=topic_id, clean=clean, **values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedNote(f"{NOTE}: {error}") from error
