"""Admin calls on users: names with SCRAM credentials, which serve PLAIN as well.

The password does not leave this process: the broker gets a salted hash of it, and keeps less.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.admin.base import AdminBase, check_parts
from ottla.client.admin.types import UserDescription
from ottla.client.errors import BadArgument, KafkaError, WrongType, check, failure
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.schema.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.admin.types import ScramName

SCRAM: Final[dict[ScramName, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES: Final = {number: name for name, number in SCRAM.items()}
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384
DEFAULT_ITERATIONS: Final = 8192


class UserCalls(AdminBase):
    """Create, describe and delete users."""

    async def create_user(
        self,
        name: str,
        password: str,
        *,
        mechanism: ScramName = "SCRAM-SHA-512",
        iterations: int = DEFAULT_ITERATIONS,
    ) -> bool:
        """Create a user, or give it another password; answers whether the user is new.

        After it only this password works: it is set for `mechanism` and for every other one that
        the user has.
        """
        arguments.text("name", name)
        arguments.choice("mechanism", mechanism, SCRAM)
        arguments.whole("iterations", iterations, LEAST_ITERATIONS, MOST_ITERATIONS)
        if not isinstance(password, str):
            # Without the value.
            raise WrongType(f"password: expected a text, got {type(password).__name__}")
        if not password:
            raise BadArgument("password: expected a text with something in it")
        before = await self._mechanisms(name)
        changes = [
            await asyncio.to_thread(_upsertion, name, password, one, iterations)
            for one in sorted({mechanism, *before})
        ]
        what = f"create user {name!r}"
        try:
            await self._change_users([], changes, what)
        except KafkaError as error:
            if error.code != ErrorCode.DUPLICATE_RESOURCE:
                raise
            # Apache Kafka takes one change of a user in a request.
            for change in changes:
                await self._change_users([], [change], what)
        return not before

    async def _mechanisms(self, name: str) -> list[ScramName]:
        """Those that a user has credentials for; none if there is no such user."""
        try:
            [found] = await self.describe_users([name])
        except KafkaError as error:
            if error.code != ErrorCode.RESOURCE_NOT_FOUND:
                raise
            return []
        return list(found.mechanisms)

    async def describe_users(self, names: Iterable[str] | None = None) -> list[UserDescription]:
        """These users, or all of them, by name; passwords cannot be read."""
        asked = None if names is None else arguments.texts("names", names)
        users = None if asked is None else [UserName(name) for name in asked]
        if users == []:
            return []  # which would mean all of them

        async def attempt() -> list[UserDescription]:
            answer: DescribeUserScramCredentialsResponse = await self._client.send(
                DescribeUserScramCredentialsRequest(users), to="any"
            )
            check(answer.error_code, "describe users", answer.error_message)
            check_parts(
                "describe users",
                {
                    one.user: failure(
                        one.error_code, f"describe user {one.user!r}", one.error_message
                    )
                    for one in answer.results
                },
            )
            return [
                UserDescription(
                    one.user,
                    {
                        _NAMES[credential.mechanism]: credential.iterations
                        for credential in one.credential_infos
                        if credential.mechanism in _NAMES
                    },
                )
                for one in sorted(answer.results, key=lambda one: one.user)
            ]

        return await self._client.retry(attempt)

    async def delete_user(self, name: str, *, mechanism: ScramName | None = None) -> None:
        """Delete a user, or only its credential for one mechanism. Its ACLs stay."""
        arguments.text("name", name)
        if mechanism is None:
            [found] = await self.describe_users([name])
            mechanisms = list(found.mechanisms)
        else:
            mechanisms = [arguments.choice("mechanism", mechanism, SCRAM)]
        for one in mechanisms:
            # Apache Kafka takes one change of a user in a request.
            deletion = ScramCredentialDeletion(name, SCRAM[one])
            await self._change_users([deletion], [], f"delete user {name!r}")

    async def _change_users(
        self,
        deletions: list[ScramCredentialDeletion],
        upsertions: list[ScramCredentialUpsertion],
        what: str,
    ) -> None:
        request = AlterUserScramCredentialsRequest(deletions, upsertions)

        async def attempt() -> None:
            answer: AlterUserScramCredentialsResponse = await self._client.send(
                request, to="controller"
            )
            for one in answer.results:
                check(one.error_code, what, one.error_message)

        if deletions:
            await self._once(attempt, what, "describe_users()")
        else:
            await self._client.retry(attempt)


def _upsertion(
    name: str, password: str, mechanism: ScramName, iterations: int
) -> ScramCredentialUpsertion:
    """Milliseconds of hashing, so not in the event loop."""
    import secrets

    from ottla.security.scram import MECHANISMS, SALT_BYTES, salted_password

    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(MECHANISMS[mechanism], password, salt, iterations)
    return ScramCredentialUpsertion(name, SCRAM[mechanism], iterations, salt, salted)
