"""Starts the JVM of a run while its pipeline is read, its broker starts and topics are looked at.

Only the settings are needed for that. If it fails, the session starts a JVM itself and says why it
cannot.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.errors import SparkError
from ottla.spark.jvm import Jvm
from ottla.spark.pipelines.load import settings_of
from ottla.spark.pipelines.sessions import DEFAULT_MASTER, jvm_settings
from ottla.spark.session import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Mapping


def start_early(
    file: Path, *, env: str | None, master: str | None, remote: str | None, debug: bool
) -> EarlyJvm | None:
    """None where no JVM is needed, or where loading the pipeline will say what is wrong."""
    if not file.is_file() or remote is not None:
        return None
    try:
        settings = settings_of(file, env)
        if master is None and settings.remote is not None:
            return None
        prepare_environment()
        named = master or settings.master or DEFAULT_MASTER
        return EarlyJvm(jvm_settings(named, settings.spark), debug=debug)
    except (SparkError, OSError):
        return None


class EarlyJvm:
    """A JVM that is starting. Its output goes to a file until the run knows where to keep it."""

    def __init__(self, settings: Mapping[str, str], *, debug: bool) -> None:
        self._log: Path | None = None
        if not debug:
            number, name = tempfile.mkstemp(prefix="ottla-spark-", suffix=".log")
            os.close(number)
            self._log = Path(name)
        self._jvm: Jvm | None = Jvm(settings, self._log)

    def connect(self, log: Path | None) -> None:
        """Make it the JVM of the session; its output so far, and from now on, is in `log`."""
        jvm, self._jvm = self._jvm, None
        if jvm is None:
            return
        if log is not None and self._log is not None:
            self._keep_log(self._log, log)
            self._log = None
        from pyspark import SparkContext

        if SparkContext._gateway is not None:  # the pipeline's file has a session of its own
            jvm.end()
        else:
            jvm.connect()

    def close(self) -> None:
        """End what nobody came to use."""
        if self._jvm is not None:
            self._jvm.end()
        if self._log is not None:
            self._log.unlink(missing_ok=True)

    def _keep_log(self, early: Path, log: Path) -> None:
        try:
            early.rename(log)
        except OSError:  # on another file system
            log.unlink(missing_ok=True)
            log.symlink_to(early)
