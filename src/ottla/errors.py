"""All that Ottla raises, in one place; `OttlaError` is above all of it.

    try:
        records = await consumer.poll()
    except errors.NotSubscribed:
        ...
    except errors.OttlaError as error:
        print(error)  # one sentence that says what to do

- `ClientError`: Admin, Producer, Reader and ShareConsumer. Below it:
  `BadArgument` (a `ValueError`) and `WrongType` (a `TypeError`) refuse an argument before anything
  is sent; `ConnectionLost` and `RequestTimedOut` mean that there is no answer; `KafkaError` is an
  answer with an error code, which it carries.
- `OffsetError`: stores of offsets; a wrong argument is an `InvalidOffsetArgument`. `StreamError`:
  `ottla.streams`. `SparkError`: `ottla.spark`. `SchemaError`: schemas and their registry.
  `TableError`: tables of topics.

This module imports nothing of Ottla, so that every room can derive from `OttlaError`. The other
names are looked up in their rooms when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.broker.errors import (
        BrokerNotRunning,
        CannotListen,
        CannotOpenDirectory,
        ExposedListener,
    )
    from ottla.client.admin.resets import (
        NothingToReset,
    )
    from ottla.client.admin.transactions import (
        NoSuchTransaction,
    )
    from ottla.client.cluster.bootstrap import (
        BadBootstrap,
    )
    from ottla.client.consumer.types import (
        CommitFailed,
        NoOffset,
    )
    from ottla.client.errors import (
        AuthenticationFailed,
        AuthorizationFailed,
        BadArgument,
        BrokerUnreachable,
        ClientClosed,
        ClientError,
        ClientFault,
        ClusterAuthorizationFailed,
        ConnectionLost,
        GroupAuthorizationFailed,
        GroupOfAnotherKind,
        HeldByQuota,
        KafkaError,
        MissingExtra,
        NotSubscribed,
        PartialFailure,
        RequestTimedOut,
        TlsFailed,
        TopicAuthorizationFailed,
        TransactionalIdAuthorizationFailed,
        UnknownTopic,
        UnsupportedApi,
        UnsupportedSecurity,
        WrongPlace,
        WrongProtocol,
        WrongType,
    )
    from ottla.client.producer.types import (
        MissingColumn,
        RecordTooLarge,
    )
    from ottla.client.reader.types import (
        CorruptRecords,
        DataLost,
        TopicRecreated,
    )
    from ottla.client.share.types import (
        ConcurrentPoll,
        EmptyGroupId,
        RecordNotHeld,
        UnacknowledgedRecords,
        UndecodableRecords,
        UnknownVerdict,
        WrongAckMode,
    )
    from ottla.client.transactions.types import (
        AbortableTransactionError,
        FatalTransactionError,
        ProducerFenced,
        TransactionAborted,
        TransactionError,
        TransactionUnresolved,
        WrongTransactionState,
    )
    from ottla.log.directory import (
        DirectoryLocked,
    )
    from ottla.metadata.errors import (
        InvalidConfig,
        UnknownConfig,
    )
    from ottla.offsets.errors import (
        InvalidOffsetArgument,
        InvalidOffsetType,
        NotInTransaction,
        OffsetConflict,
        OffsetCorrupt,
        OffsetError,
        OffsetLockTimeout,
        OffsetRegression,
        OffsetStoreError,
        PostCommitHookError,
        StaleOffset,
    )
    from ottla.schemas.model import (
        InvalidSchema,
        SchemaError,
        SchemaTooLarge,
    )
    from ottla.security.errors import (
        BadSecuritySetting,
        CertificateProblem,
        SecurityError,
    )
    from ottla.security.jaas import (
        BadJaas,
    )
    from ottla.security.secrets import (
        SecretRefused,
    )
    from ottla.spark.errors import (
        BadCheckpoint,
        BadOption,
        BadSchema,
        BadVerdict,
        BatchLost,
        DataLoss,
        NoJava,
        NoProgress,
        NotSaved,
        OwnerRule,
        SparkError,
        TaskRepeated,
    )
    from ottla.spark.pipelines.errors import (
        DefinitionError,
        EnvironmentProblem,
        SessionLost,
    )
    from ottla.streams.errors import (
        AckNotAllowed,
        AlreadyAnchored,
        BackendNotInstalled,
        ChecksumError,
        CommitNotAllowed,
        ConfigError,
        ConnectError,
        ConsumerBusy,
        ConsumerClosed,
        DeliveryError,
        Evicted,
        FileBusy,
        FileLimitExceeded,
        FormatError,
        GroupIsSet,
        GroupLost,
        GroupNotSet,
        InvalidArgument,
        InvalidBeaconInterval,
        InvalidStreamKey,
        InvalidType,
        LatestButNotLive,
        NoEndingSlash,
        NoStoredPosition,
        NotAnchored,
        NotOneStreamKey,
        NoWildcardInGroup,
        PayloadDecodeError,
        PositionOutOfRange,
        ProducerEnded,
        ProtocolRequired,
        SameGroupSameMode,
        SeekOutOfRange,
        SequenceOverflow,
        ShardNotAssigned,
        StreamEnded,
        StreamError,
        StreamKeyEmpty,
        StreamKeyNotFound,
        TruncatedFile,
        Unsupported,
        UrlError,
    )
    from ottla.streams.lines import (
        NotOneLine,
    )
    from ottla.streams.relay import Lossy
    from ottla.tables.errors import (
        BadTableSetting,
        NotATopicTable,
        TableError,
        TablePaused,
        TableRunFailed,
    )

__all__ = [
    "AbortableTransactionError",
    "AckNotAllowed",
    "AlreadyAnchored",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BackendNotInstalled",
    "BadArgument",
    "BadBootstrap",
    "BadCheckpoint",
    "BadJaas",
    "BadOption",
    "BadSchema",
    "BadSecuritySetting",
    "BadTableSetting",
    "BadVerdict",
    "BatchLost",
    "BrokerNotRunning",
    "BrokerUnreachable",
    "CannotListen",
    "CannotOpenDirectory",
    "CertificateProblem",
    "ChecksumError",
    "ClientClosed",
    "ClientError",
    "ClientFault",
    "ClusterAuthorizationFailed",
    "CommitFailed",
    "CommitNotAllowed",
    "ConcurrentPoll",
    "ConfigError",
    "ConnectError",
    "ConnectionLost",
    "ConsumerBusy",
    "ConsumerClosed",
    "CorruptRecords",
    "DataLoss",
    "DataLost",
    "DefinitionError",
    "DeliveryError",
    "DirectoryLocked",
    "EmptyGroupId",
    "EnvironmentProblem",
    "Evicted",
    "ExposedListener",
    "FatalTransactionError",
    "FileBusy",
    "FileLimitExceeded",
    "FormatError",
    "GroupAuthorizationFailed",
    "GroupIsSet",
    "GroupLost",
    "GroupNotSet",
    "GroupOfAnotherKind",
    "HeldByQuota",
    "InvalidArgument",
    "InvalidBeaconInterval",
    "InvalidConfig",
    "InvalidOffsetArgument",
    "InvalidOffsetType",
    "InvalidSchema",
    "InvalidStreamKey",
    "InvalidType",
    "KafkaError",
    "LatestButNotLive",
    "Lossy",
    "MissingColumn",
    "MissingExtra",
    "NoEndingSlash",
    "NoJava",
    "NoOffset",
    "NoProgress",
    "NoStoredPosition",
    "NoSuchTransaction",
    "NoWildcardInGroup",
    "NotATopicTable",
    "NotAnchored",
    "NotInTransaction",
    "NotOneLine",
    "NotOneStreamKey",
    "NotSaved",
    "NotSubscribed",
    "NothingToReset",
    "OffsetConflict",
    "OffsetCorrupt",
    "OffsetError",
    "OffsetLockTimeout",
    "OffsetRegression",
    "OffsetStoreError",
    "OttlaError",
    "OwnerRule",
    "PartialFailure",
    "PayloadDecodeError",
    "PositionOutOfRange",
    "PostCommitHookError",
    "ProducerEnded",
    "ProducerFenced",
    "ProtocolRequired",
    "RecordNotHeld",
    "RecordTooLarge",
    "RequestTimedOut",
    "SameGroupSameMode",
    "SchemaError",
    "SchemaTooLarge",
    "SecretRefused",
    "SecurityError",
    "SeekOutOfRange",
    "SequenceOverflow",
    "SessionLost",
    "ShardNotAssigned",
    "SparkError",
    "StaleOffset",
    "StreamEnded",
    "StreamError",
    "StreamKeyEmpty",
    "StreamKeyNotFound",
    "TableError",
    "TablePaused",
    "TableRunFailed",
    "TaskRepeated",
    "TlsFailed",
    "TopicAuthorizationFailed",
    "TopicRecreated",
    "TransactionAborted",
    "TransactionError",
    "TransactionUnresolved",
    "TransactionalIdAuthorizationFailed",
    "TruncatedFile",
    "UnacknowledgedRecords",
    "UndecodableRecords",
    "UnknownConfig",
    "UnknownTopic",
    "UnknownVerdict",
    "Unsupported",
    "UnsupportedApi",
    "UnsupportedSecurity",
    "UrlError",
    "WrongAckMode",
    "WrongPlace",
    "WrongProtocol",
    "WrongTransactionState",
    "WrongType",
]

_HOMES = {
    "AbortableTransactionError": "ottla.client.transactions.types",
    "AckNotAllowed": "ottla.streams.errors",
    "AlreadyAnchored": "ottla.streams.errors",
    "AuthenticationFailed": "ottla.client.errors",
    "AuthorizationFailed": "ottla.client.errors",
    "BackendNotInstalled": "ottla.streams.errors",
    "BadArgument": "ottla.client.errors",
    "BadBootstrap": "ottla.client.cluster.bootstrap",
    "BadCheckpoint": "ottla.spark.errors",
    "BadJaas": "ottla.security.jaas",
    "BadOption": "ottla.spark.errors",
    "BadSchema": "ottla.spark.errors",
    "BadSecuritySetting": "ottla.security.errors",
    "BadTableSetting": "ottla.tables.errors",
    "BadVerdict": "ottla.spark.errors",
    "BatchLost": "ottla.spark.errors",
    "BrokerNotRunning": "ottla.broker.errors",
    "BrokerUnreachable": "ottla.client.errors",
    "CannotListen": "ottla.broker.errors",
    "CannotOpenDirectory": "ottla.broker.errors",
    "CertificateProblem": "ottla.security.errors",
    "ChecksumError": "ottla.streams.errors",
    "ClientClosed": "ottla.client.errors",
    "ClientError": "ottla.client.errors",
    "ClientFault": "ottla.client.errors",
    "ClusterAuthorizationFailed": "ottla.client.errors",
    "CommitFailed": "ottla.client.consumer.types",
    "CommitNotAllowed": "ottla.streams.errors",
    "ConcurrentPoll": "ottla.client.share.types",
    "ConfigError": "ottla.streams.errors",
    "ConnectError": "ottla.streams.errors",
    "ConnectionLost": "ottla.client.errors",
    "ConsumerBusy": "ottla.streams.errors",
    "ConsumerClosed": "ottla.streams.errors",
    "CorruptRecords": "ottla.client.reader.types",
    "DataLoss": "ottla.spark.errors",
    "DataLost": "ottla.client.reader.types",
    "DefinitionError": "ottla.spark.pipelines.errors",
    "DeliveryError": "ottla.streams.errors",
    "DirectoryLocked": "ottla.log.directory",
    "EmptyGroupId": "ottla.client.share.types",
    "EnvironmentProblem": "ottla.spark.pipelines.errors",
    "Evicted": "ottla.streams.errors",
    "ExposedListener": "ottla.broker.errors",
    "FatalTransactionError": "ottla.client.transactions.types",
    "FileBusy": "ottla.streams.errors",
    "FileLimitExceeded": "ottla.streams.errors",
    "FormatError": "ottla.streams.errors",
    "GroupAuthorizationFailed": "ottla.client.errors",
    "GroupIsSet": "ottla.streams.errors",
    "GroupLost": "ottla.streams.errors",
    "GroupNotSet": "ottla.streams.errors",
    "GroupOfAnotherKind": "ottla.client.errors",
    "HeldByQuota": "ottla.client.errors",
    "InvalidArgument": "ottla.streams.errors",
    "InvalidBeaconInterval": "ottla.streams.errors",
    "InvalidConfig": "ottla.metadata.errors",
    "InvalidOffsetArgument": "ottla.offsets.errors",
    "InvalidOffsetType": "ottla.offsets.errors",
    "InvalidSchema": "ottla.schemas.model",
    "InvalidStreamKey": "ottla.streams.errors",
    "InvalidType": "ottla.streams.errors",
    "KafkaError": "ottla.client.errors",
    "LatestButNotLive": "ottla.streams.errors",
    "Lossy": "ottla.streams.relay",
    "MissingColumn": "ottla.client.producer.types",
    "MissingExtra": "ottla.client.errors",
    "NoEndingSlash": "ottla.streams.errors",
    "NoJava": "ottla.spark.errors",
    "NoOffset": "ottla.client.consumer.types",
    "NoProgress": "ottla.spark.errors",
    "NoStoredPosition": "ottla.streams.errors",
    "NoSuchTransaction": "ottla.client.admin.transactions",
    "NoWildcardInGroup": "ottla.streams.errors",
    "NotATopicTable": "ottla.tables.errors",
    "NotAnchored": "ottla.streams.errors",
    "NotInTransaction": "ottla.offsets.errors",
    "NotOneLine": "ottla.streams.lines",
    "NotOneStreamKey": "ottla.streams.errors",
    "NotSaved": "ottla.spark.errors",
    "NotSubscribed": "ottla.client.errors",
    "NothingToReset": "ottla.client.admin.resets",
    "OffsetConflict": "ottla.offsets.errors",
    "OffsetCorrupt": "ottla.offsets.errors",
    "OffsetError": "ottla.offsets.errors",
    "OffsetLockTimeout": "ottla.offsets.errors",
    "OffsetRegression": "ottla.offsets.errors",
    "OffsetStoreError": "ottla.offsets.errors",
    "OwnerRule": "ottla.spark.errors",
    "PartialFailure": "ottla.client.errors",
    "PayloadDecodeError": "ottla.streams.errors",
    "PositionOutOfRange": "ottla.streams.errors",
    "PostCommitHookError": "ottla.offsets.errors",
    "ProducerEnded": "ottla.streams.errors",
    "ProducerFenced": "ottla.client.transactions.types",
    "ProtocolRequired": "ottla.streams.errors",
    "RecordNotHeld": "ottla.client.share.types",
    "RecordTooLarge": "ottla.client.producer.types",
    "RequestTimedOut": "ottla.client.errors",
    "SameGroupSameMode": "ottla.streams.errors",
    "SchemaError": "ottla.schemas.model",
    "SchemaTooLarge": "ottla.schemas.model",
    "SecretRefused": "ottla.security.secrets",
    "SecurityError": "ottla.security.errors",
    "SeekOutOfRange": "ottla.streams.errors",
    "SequenceOverflow": "ottla.streams.errors",
    "SessionLost": "ottla.spark.pipelines.errors",
    "ShardNotAssigned": "ottla.streams.errors",
    "SparkError": "ottla.spark.errors",
    "StaleOffset": "ottla.offsets.errors",
    "StreamEnded": "ottla.streams.errors",
    "StreamError": "ottla.streams.errors",
    "StreamKeyEmpty": "ottla.streams.errors",
    "StreamKeyNotFound": "ottla.streams.errors",
    "TableError": "ottla.tables.errors",
    "TablePaused": "ottla.tables.errors",
    "TableRunFailed": "ottla.tables.errors",
    "TaskRepeated": "ottla.spark.errors",
    "TlsFailed": "ottla.client.errors",
    "TopicAuthorizationFailed": "ottla.client.errors",
    "TopicRecreated": "ottla.client.reader.types",
    "TransactionAborted": "ottla.client.transactions.types",
    "TransactionError": "ottla.client.transactions.types",
    "TransactionUnresolved": "ottla.client.transactions.types",
    "TransactionalIdAuthorizationFailed": "ottla.client.errors",
    "TruncatedFile": "ottla.streams.errors",
    "UnacknowledgedRecords": "ottla.client.share.types",
    "UndecodableRecords": "ottla.client.share.types",
    "UnknownConfig": "ottla.metadata.errors",
    "UnknownTopic": "ottla.client.errors",
    "UnknownVerdict": "ottla.client.share.types",
    "Unsupported": "ottla.streams.errors",
    "UnsupportedApi": "ottla.client.errors",
    "UnsupportedSecurity": "ottla.client.errors",
    "UrlError": "ottla.streams.errors",
    "WrongAckMode": "ottla.client.share.types",
    "WrongPlace": "ottla.client.errors",
    "WrongProtocol": "ottla.client.errors",
    "WrongTransactionState": "ottla.client.transactions.types",
    "WrongType": "ottla.client.errors",
}


class OttlaError(Exception):
    """Above every error that Ottla raises for a caller to handle. All of them pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Without __init__, whose arguments need not be `args`.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[OttlaError], args: tuple[Any, ...], state: dict[str, Any]) -> OttlaError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'ottla.errors' has no attribute {name!r}") from None
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
