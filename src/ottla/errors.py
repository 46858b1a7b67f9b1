"""All that a client of Ottla raises, in one place; `ClientError` is above all of it.

    try:
        records = await consumer.poll()
    except errors.NotSubscribed:
        ...
    except errors.ClientError as error:
        print(error)  # one sentence that names the way out

- `BadArgument`: what a call was given cannot be; it is a `ValueError` too.
- `ConnectionLost`, `RequestTimedOut`: there is no answer, and perhaps never was a broker.
- `KafkaError`: an answer with an error code, which it carries.
- The others belong to one client each and say what it was asked for at the wrong time.
"""

from __future__ import annotations

from ottla.client.admin.resets import NothingToReset
from ottla.client.admin.transactions import NoSuchTransaction
from ottla.client.cluster.bootstrap import BadBootstrap
from ottla.client.errors import (
    BadArgument,
    BadSetting,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    KafkaError,
    MissingExtra,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedApi,
    UnsupportedSecurity,
    WrongProtocol,
)
from ottla.client.producer.types import MissingColumn, RecordTooLarge
from ottla.client.reader.types import CorruptRecords, DataLost, TopicRecreated
from ottla.client.share.types import (
    ConcurrentPoll,
    EmptyGroupId,
    NotSubscribed,
    RecordNotHeld,
    UnacknowledgedRecords,
    UndecodableRecords,
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

__all__ = [
    "AbortableTransactionError",
    "BadArgument",
    "BadBootstrap",
    "BadSetting",
    "BrokerUnreachable",
    "ClientClosed",
    "ClientError",
    "ConcurrentPoll",
    "ConnectionLost",
    "CorruptRecords",
    "DataLost",
    "EmptyGroupId",
    "FatalTransactionError",
    "KafkaError",
    "MissingColumn",
    "MissingExtra",
    "NoSuchTransaction",
    "NotSubscribed",
    "NothingToReset",
    "ProducerFenced",
    "RecordNotHeld",
    "RecordTooLarge",
    "RequestTimedOut",
    "TopicRecreated",
    "TransactionAborted",
    "TransactionError",
    "TransactionUnresolved",
    "UnacknowledgedRecords",
    "UndecodableRecords",
    "UnknownTopic",
    "UnsupportedApi",
    "UnsupportedSecurity",
    "WrongAckMode",
    "WrongProtocol",
    "WrongTransactionState",
]
