"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51).

- Describe: null or an empty list asks for all users. It returns mechanisms and iterations, never
  salts or keys. A name that is requested twice is 92, an unknown one 91.
- Alter: one result per named user. All changes of a user are made or none; users are independent,
  and all are changed in one proposal. Two changes of one mechanism of a user are 92, deleting a
  missing credential is 91, an unknown mechanism 33, an invalid name or credential 93.
- The client sends the salted password. The broker computes the verifier from it and drops it: it
  reaches no store, log or repr.
- Permissions on the cluster: describe to describe, alter to alter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import Large
from ottla.broker.topics import decided_everywhere
from ottla.metadata.changes.security import RemoveScramCredential, SetScramCredential
from ottla.metadata.errors import UnacceptableCredential
from ottla.metadata.security.acls import Operation
from ottla.metadata.security.users import (
    MAX_USERS,
    MECHANISMS,
    ScramCredential,
    check_credential,
    check_user_name,
)
from ottla.security import scram
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.schema.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext
    from ottla.metadata.changes.apply import Change
    from ottla.metadata.image import MetadataImage

NUMBERS = {name: number for number, name in MECHANISMS.items()}


async def describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest, cluster: Cluster
) -> DescribeUserScramCredentialsResponse | Large[DescribeUserScramCredentialsResponse]:
    try:
        context.require_cluster(Operation.DESCRIBE)
    except ApiError as error:
        return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=str(error))
    users = cluster.image.scram
    asked = Counter(user.name for user in request.users or ()) or Counter(sorted(users))
    return Large(
        DescribeUserScramCredentialsResponse(
            error_message=None,
            results=[_described(users, name, count) for name, count in asked.items()],
        )
    )


def _described(
    users: Mapping[str, Mapping[str, ScramCredential]], name: str, count: int
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        text = f"User {name} is asked for {count} times."
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text)
    if name not in users:
        text = f"There is no user {name}."
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    return DescribeUserScramCredentialsResult(
        name,
        error_message=None,
        credential_infos=[
            CredentialInfo(NUMBERS[mechanism], credential.iterations)
            for mechanism, credential in sorted(users[name].items())
        ],
    )


async def alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest, cluster: Cluster
) -> AlterUserScramCredentialsResponse:
    named = dict.fromkeys(
        [one.name for one in request.deletions] + [one.name for one in request.upsertions]
    )
    try:
        context.require_cluster(Operation.ALTER)
        failed = await _alter(request, cluster)
    except ApiError as error:
        failed = dict.fromkeys(named, error)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(name, failed[name].code, str(failed[name]))
            if name in failed
            else AlterUserScramCredentialsResult(name, error_message=None)
            for name in named
        ]
    )


async def _alter(
    request: AlterUserScramCredentialsRequest, cluster: Cluster
) -> dict[str, ApiError]:
    """The errors of the users that are not changed."""
    refused: dict[str, ApiError] = {}
    changes: list[SetScramCredential | RemoveScramCredential] = []
    seen: set[tuple[str, int]] = set()
    asked: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    for one in asked:
        try:
            if (one.name, one.mechanism) in seen:
                text = f"{one.name} has two changes of one mechanism."
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, text)
            seen.add((one.name, one.mechanism))
            mechanism = MECHANISMS.get(one.mechanism)
            if mechanism is None:
                text = f"Mechanism {one.mechanism} is none of SCRAM's: 1 or 2."
                raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
            if isinstance(one, ScramCredentialUpsertion):
                credential = _credential(mechanism, one)
                changes.append(SetScramCredential(one.name, mechanism, credential))
            else:
                changes.append(RemoveScramCredential(one.name, mechanism))
        except ApiError as error:
            refused.setdefault(one.name, error)
    failed: dict[str, ApiError] = {}

    def decide(image: MetadataImage) -> list[Change]:
        failed.clear()
        failed.update(refused)
        for change in changes:
            missing = change.mechanism not in image.scram.get(change.user, {})
            if isinstance(change, RemoveScramCredential) and missing:
                text = f"{change.user} has no credential for {change.mechanism}."
                failed.setdefault(change.user, ApiError(ErrorCode.RESOURCE_NOT_FOUND, text))
        made: list[Change] = [change for change in changes if change.user not in failed]
        new = {
            change.user for change in made if isinstance(change, SetScramCredential)
        } - image.scram.keys()
        if len(image.scram) + len(new) > MAX_USERS:
            text = f"There are {len(image.scram)} users; at most {MAX_USERS} are kept."
            raise ApiError(ErrorCode.POLICY_VIOLATION, text)
        return made

    await decided_everywhere(cluster, decide)
    return failed


def _credential(mechanism: str, asked: ScramCredentialUpsertion) -> ScramCredential:
    try:
        check_user_name(asked.name)
        check_credential(mechanism, asked.salt, asked.iterations, asked.salted_password)
    except UnacceptableCredential as error:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from error
    made = scram.credential_of_salted(
        scram.MECHANISMS[mechanism],
        bytes(asked.salted_password),
        bytes(asked.salt),
        asked.iterations,
    )
    return ScramCredential(made.salt, made.iterations, made.stored_key, made.server_key)
