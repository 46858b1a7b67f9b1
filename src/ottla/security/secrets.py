"""Secrets that are kept elsewhere: `<key>.file` names a file, `<key>.env` a variable.

Whoever runs a process may read its files, so a broker's `<key>.file` is just read. Options of a
Spark query may come from somebody who must not read the cluster's files (CVE-2024-31141), so there
a fence decides: files only below `OTTLA_SECRET_DIRS`, symbolic links resolved first, and variables
only if their names begin with `OTTLA_SECRET_`. No text is ever expanded: `${file:...}` stays text.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SECRET_BYTES: Final = 64 * 1024
"""Enough for a key with its chain."""
DIRECTORIES_VARIABLE: Final = "OTTLA_SECRET_DIRS"
DEFAULT_DIRECTORIES: Final = "/run/secrets:/var/run/secrets"
ENV_PREFIX: Final = "OTTLA_SECRET_"
FILE_SUFFIX: Final = ".file"
ENV_SUFFIX: Final = ".env"
TWINS: Final = (FILE_SUFFIX, ENV_SUFFIX)


class SecretRefused(OttlaError, ValueError):
    """A secret that cannot be read, or must not be."""


def read_secret(path: Path, key: str) -> str:
    """The text of a file, without the line break at its end."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SecretRefused(f"{key}: cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_SECRET_BYTES:
        raise SecretRefused(f"{key}: {path} is longer than {MAX_SECRET_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise SecretRefused(f"{key}: {path} is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")


@dataclass(frozen=True, slots=True)
class Fence:
    """Where secrets named by options may come from."""

    directories: tuple[Path, ...]
    environment: Mapping[str, str]

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None) -> Fence:
        """The fence that the process's environment describes."""
        found = os.environ if environment is None else environment
        # An empty entry would be the working directory.
        listed = found.get(DIRECTORIES_VARIABLE, DEFAULT_DIRECTORIES).split(":")
        return cls(tuple(Path(one) for one in listed if one.startswith("/")), found)

    def read_file(self, path: str, key: str) -> str:
        """The secret in a file below one of the directories."""
        # Links are resolved on both sides: the directory may be one, and a file may lead out.
        real = Path(path).resolve()
        allowed = [directory.resolve() for directory in self.directories]
        if not any(real.is_relative_to(one) for one in allowed):
            raise SecretRefused(
                f"{key}: {path} is not below {DIRECTORIES_VARIABLE} "
                f"({':'.join(map(str, self.directories)) or 'which is empty'})"
            )
        return read_secret(real, key)

    def read_env(self, name: str, key: str) -> str:
        """The secret in a variable whose name says that it is one to be read."""
        if not name.startswith(ENV_PREFIX) or name == DIRECTORIES_VARIABLE:
            raise SecretRefused(f"{key}: the variable's name must begin with {ENV_PREFIX}")
        try:
            return self.environment[name]
        except KeyError:
            raise SecretRefused(f"{key}: the variable {name} is not set") from None


def with_secrets(settings: Mapping[str, str], keys: frozenset[str], fence: Fence) -> dict[str, str]:
    """The settings with the secrets that `<key>.file` and `<key>.env` name, for these keys."""
    found = dict(settings)
    for key in sorted(keys):
        given = [one for one in (key, key + FILE_SUFFIX, key + ENV_SUFFIX) if one in found]
        if len(given) > 1:
            raise SecretRefused(f"{given[0]} and {given[1]} contradict each other: give one")
        path, variable = found.pop(key + FILE_SUFFIX, None), found.pop(key + ENV_SUFFIX, None)
        if path is not None:
            found[key] = fence.read_file(path, key + FILE_SUFFIX)
        if variable is not None:
            found[key] = fence.read_env(variable, key + ENV_SUFFIX)
    return found
