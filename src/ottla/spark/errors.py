"""Errors of the `ottla` format; each message says what to do."""

from __future__ import annotations

from ottla.errors import OttlaError


class SparkError(OttlaError):
    """Base class of the errors of the `ottla` format."""


class BadOption(SparkError, ValueError):
    """A missing, unsupported or invalid option."""


class BadSchema(SparkError, ValueError):
    """A schema that the format cannot read or write."""


class BadCheckpoint(SparkError):
    """A checkpoint that belongs to another query."""


class BadVerdict(SparkError):
    """A line of `share.verdicts` that names no record."""


class InvalidValue(SparkError):
    """A value does not fit the columns of the query, and `invalid` is fail."""


class SchemaChanged(SparkError):
    """The subject of a query has a newer schema, and `schemaEvolution` is restart."""


class DataLoss(SparkError):
    """Records were deleted before the query could read them, and `failOnDataLoss` is true."""


class NotSaved(SparkError):
    """Offsets could not be saved, and `offsetStore.required` is true."""


class NoProgress(SparkError):
    """A broker has had nothing for a task for `kafkaConsumer.pollTimeoutMs`."""


class NoSpark(SparkError):
    """Spark is not installed."""


class NoJava(SparkError):
    """No suitable Java was found."""


class OwnerRule(SparkError):
    """Two tasks of an exactly-once batch have written to one partition."""


class TaskRepeated(SparkError):
    """Spark repeats a task of an exactly-once batch; its rows may be written already."""


class BatchLost(SparkError):
    """The transaction of an exactly-once batch was aborted, or another run took it over."""
