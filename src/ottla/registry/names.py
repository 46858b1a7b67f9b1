"""Subjects and their contexts.

A subject is `orders-value`, or `:.name:orders-value` in the context `.name`. Each context has ids
of its own. `:.:x` is `x` of the default context. `:.name:` names the context itself: its level
and its mode are those of all its subjects that have none of their own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.registry.errors import Code, RegistryError

DEFAULT_CONTEXT: Final = "."
MAX_NAME: Final = 1_024
"""Characters of a subject: four times the longest name of a topic."""
RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})
"""Other registries give these a meaning."""


class Subject(NamedTuple):
    context: str
    name: str

    @property
    def qualified(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"

    @property
    def topic(self) -> str:
        """The topic whose records have its schemas."""
        for suffix in ("-key", "-value"):
            if self.name.endswith(suffix):
                return self.name.removesuffix(suffix)
        return self.name


def split(subject: str) -> Subject:
    """Context and name, of whatever stands in a record."""
    if not subject.startswith(":."):
        return Subject(DEFAULT_CONTEXT, subject)
    context, colon, name = subject[1:].partition(":")
    return Subject(context, name) if colon else Subject(DEFAULT_CONTEXT, subject)


def context_of(subject: str) -> str:
    return split(subject).context


def checked(subject: str, *, or_context: bool = False) -> str:
    """A subject as it is stored; `or_context` allows `:.name:`, all subjects of a context."""
    context, name = split(subject)
    if (
        (not name and not (or_context and context != DEFAULT_CONTEXT))
        or len(subject) > MAX_NAME
        or name in RESERVED
        or not subject.isprintable()
        or (subject.startswith(":.") and subject.count(":") < 2)
    ):
        raise RegistryError(
            Code.INVALID_SUBJECT,
            f"{subject[:80]!r} is no subject: give a name of at most {MAX_NAME} printable "
            "characters, such as orders-value or :.context:orders-value",
        )
    return Subject(context, name).qualified


def beside(subject: str, other: str) -> str:
    """Another subject as it is meant in one of this context: of the same, unless it says which."""
    if other.startswith(":."):
        return split(other).qualified
    return Subject(context_of(subject), other).qualified
