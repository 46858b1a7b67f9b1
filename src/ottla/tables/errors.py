"""Errors of tables. `TableError` is above all of them."""

from __future__ import annotations

from ottla.errors import OttlaError


class TableError(OttlaError):
    """A table cannot be written or read; the sentence says what to do."""


class BadTableSetting(TableError, ValueError):
    """Invalid setting of a table or of the worker."""


class BadPointer(TableError):
    """A record of the topic of pointers is not one, or a newer version wrote it."""


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


class TableRunFailed(TableError):
    """A run that should end could not take all records."""
