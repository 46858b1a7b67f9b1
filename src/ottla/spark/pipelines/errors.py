"""Errors of a pipeline before it runs; each message says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.errors import SparkError

if TYPE_CHECKING:
    from collections.abc import Sequence


class DefinitionError(SparkError, ValueError):
    """The file, its YAML or the graph they describe is wrong: one sentence per problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems: Sequence[str] = problems


class EnvironmentProblem(SparkError):
    """The pipeline is valid, but Java, a package, a broker or a topic is missing."""


class SessionLost(SparkError):
    """The Spark session is lost with all flows in it; they can continue in a new session."""
