"""A request that is not served: a status and a sentence that says what to do."""

from __future__ import annotations

from ottla.errors import OttlaError


class Refused(OttlaError):
    """Answered as a page or, below `/api/`, as `application/problem+json`."""

    def __init__(self, status: int, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[Refused], tuple[int, str, int | None]]:
        return Refused, (self.status, self.sentence, self.retry_after)
