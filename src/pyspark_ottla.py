"""Spark looks for modules named like this one, which is all the registration there is."""

from ottla.spark.source import OttlaSource


class DefaultSource(OttlaSource):
    """The class Spark asks for by this name."""
