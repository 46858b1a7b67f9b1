"""What can be wrong with a query on the `ottla` format; each text is a sentence with the fix."""

from __future__ import annotations

from ottla.errors import OttlaError


class SparkError(OttlaError):
    """The query cannot go on as it is."""


class BadOption(SparkError, ValueError):
    """An option is missing, refused, or has a value that cannot be."""


class BadSchema(SparkError, ValueError):
    """A schema that the format cannot read or write."""


class BadCheckpoint(SparkError):
    """A checkpoint that belongs to another query."""


class BadVerdict(SparkError):
    """A line of `share.verdicts` that names no record."""


class DataLoss(SparkError):
    """Records of a query are gone, and `failOnDataLoss` says that this is an error."""


class NotSaved(SparkError):
    """Offsets could not be saved in a store, and `offsetStore.required` says that they must be."""


class NoProgress(SparkError):
    """A broker has had nothing for a task for `kafkaConsumer.pollTimeoutMs`."""


class NoJava(SparkError):
    """There is no Java that Spark could run on."""


class OwnerRule(SparkError):
    """Two tasks of an exactly-once batch have written to one partition."""


class TaskRepeated(SparkError):
    """Spark runs a task of an exactly-once batch once more, whose rows may be there already."""


class BatchLost(SparkError):
    """The transaction of an exactly-once batch is no longer this query's to write to."""
