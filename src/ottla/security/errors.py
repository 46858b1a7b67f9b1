"""Errors of the security room."""

from __future__ import annotations

from ottla.errors import OttlaError


class SecurityError(OttlaError):
    """Base class of errors about TLS, SASL and certificates."""


class BadSecuritySetting(SecurityError, ValueError):
    """A setting that cannot be used; the message names its key and what to do."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(key, problem)
        self.key = key
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}"


class CertificateProblem(SecurityError):
    """A certificate or key cannot be made, read or written."""
