"""Options that say where schemas are: `schemaRegistryUrl`, and who asks there.

Without a user the registry is asked as the brokers are: with the user, password and CA of
`kafka.*`. A password may be in a file or a variable, as those of brokers (`client_settings`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.schemas.model import SchemaError
from ottla.security.secrets import Fence, SecretRefused, with_secrets
from ottla.spark.errors import BadOption

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from ottla.client.security import Security
    from ottla.schemas.cache import SchemaCache
    from ottla.spark.client_settings import ClientSettings

USER: Final = "schemaRegistry.user"
PASSWORD: Final = "schemaRegistry.password"


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Where the registry is; None if the brokers say it."""

    url: str | None
    user: str | None = None
    password: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The options of the password, unparsed: each process reads it for itself."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> RegistryOptions:
        """From options that belong to `valueFormat`."""
        password = tuple((name, given[name]) for name in given if name.startswith(PASSWORD))
        user = given.get(USER) or None
        if password and user is None:
            raise BadOption(f"{password[0][0]}: give {USER}, too")
        return cls(given.get("schemaRegistryUrl") or None, user, password)

    def found(self, client: ClientSettings) -> RegistryOptions:
        """With the URL that the brokers say, if none is given."""
        from ottla.spark.background import background

        if self.url is not None:
            return self
        url = background().call(_asked(client))
        if url is None:
            raise BadOption(
                "schemaRegistryUrl is missing: the brokers do not say where the registry is"
            )
        return replace(self, url=url)

    def schemas(self, client: ClientSettings) -> SchemaCache:
        """The schemas of the registry; close them."""
        from ottla.schemas.cache import SchemaCache
        from ottla.schemas.registry_client import BlockingRegistry

        if self.url is None:
            raise BadOption("schemaRegistryUrl is missing")
        try:
            return SchemaCache(BlockingRegistry(self.url, security=self._login(client.security)))
        except SchemaError as error:
            raise BadOption(f"schemaRegistryUrl: {error}") from None

    def _login(self, security: Security) -> Security | _Login:
        if self.user is None:
            return security
        try:
            found = with_secrets(dict(self.password), frozenset({PASSWORD}), Fence.of())
        except SecretRefused as error:
            raise BadOption(str(error)) from None
        return _Login(security, self.user, found.get(PASSWORD, ""))


class _Login:
    """A user of the registry; whom to trust is as for brokers."""

    def __init__(self, security: Security, user: str, password: str) -> None:
        self._security = security
        self.sasl_username: str | None = user
        self.sasl_password: str | None = password

    def bearer(self) -> None:
        return None

    def context(self) -> ssl.SSLContext:
        return self._security.context()


async def _asked(client: ClientSettings) -> str | None:
    from ottla.client.admin.admin import Admin

    async with Admin(
        client.bootstrap, security=client.security, api_timeout=client.api_timeout
    ) as admin:
        return await admin.registry_url()
