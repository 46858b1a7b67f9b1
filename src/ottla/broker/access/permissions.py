"""What each API needs, and how a refusal is answered.

This table is the contract: `docs/reference/permissions.md` is made from it, a test refuses an API
without a row, and another drives each need allowed and denied. The checks themselves are in the
handlers, in the order of the rows: each knows where in its answer a refusal stands.

What the broker does for itself (coordinators, dead letters, retention, the tier) does not ask. What
was decided holds for the request: a fetch that waits ends within its own wait.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.error_codes import ErrorCode

READ, WRITE, CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
DELETE, ALTER, DESCRIBE = Operation.DELETE, Operation.ALTER, Operation.DESCRIBE
CLUSTER_ACTION = Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER
TRANSACTIONAL_ID = Resource.TRANSACTIONAL_ID

CODES: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Resource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    Resource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error of a refusal, by the resource."""

OPERATIONS: Final = {
    Resource.TOPIC: (
        READ,
        WRITE,
        CREATE,
        DELETE,
        ALTER,
        DESCRIBE,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
    ),
    Resource.GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    Resource.CLUSTER: (
        CREATE,
        ALTER,
        DESCRIBE,
        CLUSTER_ACTION,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        IDEMPOTENT_WRITE,
    ),
    Resource.TRANSACTIONAL_ID: (WRITE, DESCRIBE),
}
"""The operations that each resource has, for the bit fields of authorized operations."""


class Right(NamedTuple):
    operation: Operation
    resource: Resource


class Need(NamedTuple):
    """One of `rights` is needed; `when` says when, if not always."""

    rights: tuple[Right, ...]
    refused: str
    """Where the error stands, or what happens instead."""
    when: str = ""
    code: ErrorCode | None = None
    """The error of a refusal; None: what may not be seen is left out."""


Permission = tuple[Need, ...]
"""The needs of an API, in the order in which they are looked at."""


def _need(operation: Operation, resource: Resource, refused: str, when: str = "") -> Need:
    return Need((Right(operation, resource),), refused, when, CODES[resource])


def _filter(operation: Operation, resource: Resource, when: str = "") -> Need:
    return Need((Right(operation, resource),), "left out", when)


_READ_GROUP: Final = _need(READ, GROUP, "the answer")
_CLUSTER_ACTION: Final = _need(CLUSTER_ACTION, CLUSTER, "each partition")
_ALTER_RESOURCE: Final = (
    _need(ALTER_CONFIGS, TOPIC, "the resource", "topics"),
    _need(ALTER_CONFIGS, GROUP, "the resource", "groups"),
    _need(ALTER_CONFIGS, CLUSTER, "the resource", "brokers"),
    Need(
        (Right(WRITE, TOPIC),),
        "the resource",
        "errors.deadletterqueue.topic.name of a group is set; create, too, if it is missing",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
)

_SEE: Final = ("describe Topic on the subject's topic", "403, 40301")
_WRITE: Final = ("write Topic on the subject's topic", "403, 40301")
_REMOVE: Final = ("delete Topic on the subject's topic", "403, 40301")
_LIST: Final = ("describe Topic on each subject's topic", "left out")
_FIND: Final = ("describe Topic on the topic of one of its subjects", "404, 40403, as if unknown")
_FOR_ALL: Final = ("alter configs Cluster", "403, 40301")
_READ_SETTING: Final = (
    "describe Topic on the subject's topic; for a context (`:.name:`) nothing",
    "403, 40301",
)
_SET: Final = (
    "write Topic on the subject's topic; for a context (`:.name:`) alter configs Cluster",
    "403, 40301",
)
_NOTHING: Final = ("nothing", "")

REGISTRY_ROUTES: Final = {
    "GET /": _NOTHING,
    "GET /schemas/types": _NOTHING,
    "GET /v1/metadata/id": _NOTHING,
    "GET /v1/metadata/version": _NOTHING,
    "GET /contexts": _LIST,
    "GET /subjects": _LIST,
    "POST /subjects/{subject}": _SEE,
    "DELETE /subjects/{subject}": _REMOVE,
    "GET /subjects/{subject}/versions": _SEE,
    "POST /subjects/{subject}/versions": (
        "write Topic on the subject's topic; with an id (IMPORT mode) alter configs Cluster, too",
        "403, 40301",
    ),
    "GET /subjects/{subject}/versions/{version}": _SEE,
    "DELETE /subjects/{subject}/versions/{version}": _REMOVE,
    "GET /subjects/{subject}/versions/{version}/schema": _SEE,
    "GET /subjects/{subject}/versions/{version}/referencedby": (
        "describe Topic on the subject's topic; ids of others need it on theirs",
        "403, 40301; left out",
    ),
    "GET /subjects/{subject}/metadata": _SEE,
    "GET /schemas": _LIST,
    "GET /schemas/ids/{id}": _FIND,
    "GET /schemas/ids/{id}/schema": _FIND,
    "GET /schemas/ids/{id}/subjects": _FIND,
    "GET /schemas/ids/{id}/versions": _FIND,
    "GET /schemas/guids/{guid}": _FIND,
    "GET /schemas/guids/{guid}/ids": _FIND,
    "POST /compatibility/subjects/{subject}/versions": _SEE,
    "POST /compatibility/subjects/{subject}/versions/{version}": _SEE,
    "GET /config": _NOTHING,
    "PUT /config": _FOR_ALL,
    "DELETE /config": _FOR_ALL,
    "GET /config/{subject}": _READ_SETTING,
    "PUT /config/{subject}": _SET,
    "DELETE /config/{subject}": _SET,
    "GET /mode": _NOTHING,
    "PUT /mode": _FOR_ALL,
    "DELETE /mode": _FOR_ALL,
    "GET /mode/{subject}": _READ_SETTING,
    "PUT /mode/{subject}": (
        "write Topic on the subject's topic; a context and IMPORT need alter configs Cluster",
        "403, 40301",
    ),
    "DELETE /mode/{subject}": _SET,
}
"""Of the schema registry. A subject's topic is its name without its context and without `-key` or
`-value`."""

ROUTES: Final = {
    "GET /metrics": ("the token of `ottla.metrics.token`, where it is set", "401"),
    "GET /healthz": ("nothing", ""),
    "GET /readyz": ("nothing; its reasons name no topic, group or user", ""),
    **REGISTRY_ROUTES,
}
"""What each HTTP route needs, and the status of a refusal. A route without a row is not served."""

PERMISSIONS: Final[dict[int, Permission]] = {
    0: (
        _need(
            WRITE,
            TRANSACTIONAL_ID,
            "all partitions",
            "a batch is of a transaction; a request without an id is refused",
        ),
        _need(WRITE, TOPIC, "the topic's partitions"),
    ),
    1: (
        _need(CLUSTER_ACTION, CLUSTER, "each partition", "replica_id is set")._replace(
            code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ),
        _need(READ, TOPIC, "the topic's partitions, those of the session, too"),
    ),
    2: (_need(DESCRIBE, TOPIC, "the topic's partitions"),),
    3: (
        _need(DESCRIBE, TOPIC, "the topic, whether it exists or not", "topics are named"),
        _filter(DESCRIBE, TOPIC, "all are asked for"),
        Need(
            (Right(CREATE, CLUSTER), Right(CREATE, TOPIC)),
            "the topic",
            "a missing topic is to be made",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    ),
    8: (_need(READ, GROUP, "all partitions"), _need(READ, TOPIC, "the topic's partitions")),
    9: (
        _need(DESCRIBE, GROUP, "the group"),
        _need(DESCRIBE, TOPIC, "the topic's partitions", "topics are named"),
        _filter(DESCRIBE, TOPIC, "all are asked for"),
    ),
    10: (
        _need(DESCRIBE, GROUP, "the key", "a group"),
        _need(DESCRIBE, TRANSACTIONAL_ID, "the key", "a transaction"),
        _need(CLUSTER_ACTION, CLUSTER, "the key", "a share-partition"),
    ),
    11: (_READ_GROUP,),
    12: (_READ_GROUP,),
    13: (_READ_GROUP,),
    14: (_READ_GROUP,),
    15: (_need(DESCRIBE, GROUP, "the group"),),
    16: (Need((Right(DESCRIBE, CLUSTER), Right(DESCRIBE, GROUP)), "left out"),),
    17: (),
    18: (),
    19: (
        Need(
            (Right(CREATE, CLUSTER), Right(CREATE, TOPIC)),
            "the topic",
            "",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
        Need(
            (Right(DESCRIBE_CONFIGS, TOPIC),),
            "topic_config_error_code; the configs are null",
            "",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    ),
    20: (
        _need(DESCRIBE, TOPIC, "the topic, whether it exists or not; by id without its name"),
        _need(DELETE, TOPIC, "the topic"),
    ),
    21: (_need(DELETE, TOPIC, "the topic's partitions"),),
    22: (
        _need(WRITE, TRANSACTIONAL_ID, "the answer", "with a transactional id"),
        Need(
            (Right(IDEMPOTENT_WRITE, CLUSTER), Right(WRITE, TOPIC)),
            "the answer",
            "without one; write on any topic is enough",
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ),
    23: (
        Need(
            (Right(CLUSTER_ACTION, CLUSTER), Right(DESCRIBE, TOPIC)),
            "the topic's partitions",
            "",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    ),
    24: (
        _need(CLUSTER_ACTION, CLUSTER, "the answer", "v4 and later"),
        _need(WRITE, TRANSACTIONAL_ID, "all partitions", "before v4"),
        _need(WRITE, TOPIC, "the topic's partitions; the others are 55", "before v4"),
    ),
    25: (_need(WRITE, TRANSACTIONAL_ID, "the answer"), _READ_GROUP),
    26: (_need(WRITE, TRANSACTIONAL_ID, "the answer"),),
    27: (
        Need(
            (Right(ALTER, CLUSTER), Right(CLUSTER_ACTION, CLUSTER)),
            "each partition",
            "",
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ),
    28: (
        _need(WRITE, TRANSACTIONAL_ID, "all partitions"),
        _need(READ, GROUP, "all partitions"),
        _need(READ, TOPIC, "the topic's partitions"),
    ),
    29: (_need(DESCRIBE, CLUSTER, "the answer"),),
    30: (_need(ALTER, CLUSTER, "each ACL"),),
    31: (_need(ALTER, CLUSTER, "each filter"),),
    32: tuple(
        _need(DESCRIBE_CONFIGS, resource, "the resource", when)
        for resource, when in ((TOPIC, "topics"), (GROUP, "groups"), (CLUSTER, "brokers"))
    ),
    33: _ALTER_RESOURCE,
    35: (_need(DESCRIBE, CLUSTER, "the answer; before v3 it is empty"),),
    36: (),
    37: (_need(ALTER, TOPIC, "the topic"),),
    42: (_need(DELETE, GROUP, "the group"),),
    43: (_need(ALTER, CLUSTER, "the answer and each partition"),),
    44: _ALTER_RESOURCE,
    45: (_need(ALTER, CLUSTER, "the answer"),),
    46: (_need(DESCRIBE, CLUSTER, "the answer"),),
    47: (_need(DELETE, GROUP, "the answer"), _need(READ, TOPIC, "the topic's partitions")),
    48: (_need(DESCRIBE_CONFIGS, CLUSTER, "the answer"),),
    49: (_need(ALTER_CONFIGS, CLUSTER, "each entry"),),
    50: (_need(DESCRIBE, CLUSTER, "the answer"),),
    51: (_need(ALTER, CLUSTER, "each user"),),
    60: (
        _need(DESCRIBE, CLUSTER, "the answer", "the state of nodes is asked for (with_state)"),
        Need((Right(DESCRIBE, CLUSTER),), "they are 0", "operations are asked for"),
    ),
    61: (_need(READ, TOPIC, "the topic's partitions"),),
    64: (_need(ALTER, CLUSTER, "the answer"),),
    65: (_need(DESCRIBE, TRANSACTIONAL_ID, "the transaction"), _filter(DESCRIBE, TOPIC)),
    66: (_filter(DESCRIBE, TRANSACTIONAL_ID),),
    68: (
        _READ_GROUP,
        _need(DESCRIBE, TOPIC, "the answer", "topics subscribed to by name"),
        _filter(DESCRIBE, TOPIC, "topics that match a pattern"),
    ),
    69: (
        _need(DESCRIBE, GROUP, "the group"),
        _need(DESCRIBE, TOPIC, "the group, without its members", "every topic in it"),
    ),
    74: (_need(DESCRIBE_CONFIGS, CLUSTER, "the answer"),),
    75: (
        _need(DESCRIBE, TOPIC, "the topic, whether it exists or not", "topics are named"),
        _filter(DESCRIBE, TOPIC, "all are asked for"),
    ),
    76: (_READ_GROUP, _need(DESCRIBE, TOPIC, "the answer", "topics subscribed to")),
    77: (
        _need(DESCRIBE, GROUP, "the group"),
        _need(DESCRIBE, TOPIC, "the group, without its members", "every topic in it"),
    ),
    78: (_READ_GROUP, _need(READ, TOPIC, "the topic's partitions, those of the session, too")),
    79: (_READ_GROUP, _need(READ, TOPIC, "the topic's partitions")),
    83: (_CLUSTER_ACTION,),
    84: (_CLUSTER_ACTION,),
    85: (_CLUSTER_ACTION,),
    86: (_CLUSTER_ACTION,),
    87: (_CLUSTER_ACTION,),
    90: (
        _need(CLUSTER_ACTION, CLUSTER, "each group", "a node asks (from_leader)"),
        _need(DESCRIBE, GROUP, "the group"),
        _need(DESCRIBE, TOPIC, "the topic's partitions", "topics are named"),
        _filter(DESCRIBE, TOPIC, "all are asked for"),
    ),
    91: (_READ_GROUP, _need(READ, TOPIC, "the topic's partitions")),
    92: (_need(DELETE, GROUP, "the answer"), _need(READ, TOPIC, "the topic")),
}
"""By API key. Keys that the broker does not serve have no row."""
