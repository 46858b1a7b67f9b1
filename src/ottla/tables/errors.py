"""Errors of tables. `TableError` is above all of them."""

from __future__ import annotations

from ottla.errors import OttlaError


class TableError(OttlaError):
    """A table cannot be written or read; the sentence says what to do."""


class BadTableSetting(TableError, ValueError):
    """Invalid setting of a table or of the worker."""


class BadPointer(TableError):
    """A record of the topic of pointers is not one, or a newer version wrote it."""


class PointersUnreadable(TableError):
    """The topic of pointers exists, and its records do not come."""


class TablePaused(TableError):
    """The worker takes nothing for this table until somebody decides what to do."""


class NotATopicTable(TableError):
    """The table has no properties of Ottla: somebody else made it."""


class CommitRefused(TableError):
    """The catalogue certainly refused the commit: the table has moved on."""


class ColumnsMoved(CommitRefused):
    """Somebody else changed columns: files that were written for the old ones do not fit."""


class SchemaConflict(TableError):
    """A column of the table cannot take the values of the schema."""


class InvalidRecord(TableError):
    """A record does not fit the schema, and the table is to pause then."""


class SchemaNotYet(TableError):
    """The registry does not have the schema of a record; it may be registered yet."""


class TableRunFailed(TableError):
    """A run that should end could not take all records."""


class NoSuchTopic(TableError):
    """There is no such topic; the sentence names the nearest ones."""


class NoTable(TableError):
    """The topic has no table yet."""


class WrongPointer(TableError):
    """The newest pointer of a topic names a metadata file that is gone."""


class TopicReplaced(TableError):
    """The table belongs to a deleted topic of the same name."""


class TableHasHoles(TableError):
    """Records were deleted from the log before the table had taken them."""


class LogBehindTable(TableError):
    """The log ends before the table's position: it has lost records that the table has."""


class TailTooLarge(TableError):
    """The log has more records after the table than fit into memory."""


class TailStuck(TableError):
    """A leader does not give the records that it said it has."""


class FileGone(TableError):
    """A data file was deleted after a reader had opened the table."""


class FileDamaged(TableError):
    """A data file cannot be read: it is damaged, gone, or its store does not answer."""


class BadStatement(TableError, ValueError):
    """A statement that is not run: no select, or wrong in itself."""
