"""One interface to transactional producers of several makes, as sessions of a transactional id.

`open_session` has asked for an identity when it returns. `Trouble` says that the transaction can
only be aborted, `Over` that the session is. An end is answered: with success, with a refusal after
which the transaction is certainly aborted, or not.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

import ottla
from ottla.errors import ClientError, FatalTransactionError, TransactionUnresolved
from ottla.wire.error_codes import ErrorCode
from tests.support.raw_client import RawClient
from tests.support.raw_offsets import RawOffsets
from tests.support.raw_transactions import RawProducer
from tests.support.transaction_histories import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from ottla.wire.schema.produce import ProduceRequest
    from tests.support.transaction_histories import Consumed, Write

PATIENCE: Final = 60.0
PAUSE: Final = 0.02
KINDS: Final = ("ottla", "confluent", "raw-1", "raw-2")
SHORTEST_OF_LIBRDKAFKA_MS: Final = 1000
LIBRDKAFKA: Final[dict[str, Any]] = {
    "log_level": 0,
    # librdkafka 2.16 forgets its brokers when all of them are down, but goes on to send
    # offsets to the one it has forgotten.
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
}


class Trouble(Exception):
    """The transaction can only be aborted."""


class Over(Exception):
    """The session cannot go on."""


class Port(Protocol):
    """A session."""

    def begin(self) -> None: ...

    def send(self, topic: str, writes: Sequence[Write]) -> None: ...

    def send_offsets(self, topic: str, consumed: Consumed) -> None: ...

    def end(self, *, commit: bool) -> Answer: ...

    def close(self) -> None:
        """Orderly; those that are left alone instead are abandoned."""


def open_session(kind: str, bootstrap: str, transactional_id: str, timeout_ms: int) -> Port:
    makers: dict[str, Callable[[], Port]] = {
        "ottla": lambda: OttlaSession(bootstrap, transactional_id, timeout_ms),
        "confluent": lambda: ConfluentSession(bootstrap, transactional_id, timeout_ms),
        "raw-1": lambda: RawSession(bootstrap, transactional_id, timeout_ms, version=1),
        "raw-2": lambda: RawSession(bootstrap, transactional_id, timeout_ms, version=2),
    }
    return makers[kind]()


def by_partition(writes: Sequence[Write]) -> dict[int, list[bytes]]:
    values: dict[int, list[bytes]] = defaultdict(list)
    for partition, value in writes:
        values[partition].append(value.encode())
    return values


class OttlaSession:
    """`ottla.Producer`, on an event loop that all of them share."""

    _loop: asyncio.AbstractEventLoop | None = None
    _starting: Final = threading.Lock()

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = self._wait(self._connected(bootstrap, transactional_id, timeout_ms))
        self._transaction = self._producer.transaction()

    @staticmethod
    async def _connected(bootstrap: str, name: str, timeout_ms: int) -> ottla.Producer:
        producer = ottla.Producer(
            bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        try:
            await producer.connect()
        except ClientError:
            await producer.close()
            raise
        return producer

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """`Trouble` or `Over`, unless it is about an end of which nobody knows."""
        with self._starting:
            if OttlaSession._loop is None:
                OttlaSession._loop = asyncio.new_event_loop()
                threading.Thread(target=OttlaSession._loop.run_forever, daemon=True).start()
        try:
            return asyncio.run_coroutine_threadsafe(work, OttlaSession._loop).result(2 * PATIENCE)
        except TransactionUnresolved:
            raise
        except FatalTransactionError as error:
            raise Over(error) from error
        except ClientError as error:
            raise Trouble(error) from error

    def begin(self) -> None:
        self._transaction = self._producer.transaction()
        try:
            self._wait(self._transaction.__aenter__())
        except (Trouble, TransactionUnresolved) as error:
            raise Over(error) from error

    def send(self, topic: str, writes: Sequence[Write]) -> None:
        async def all_of_them() -> None:
            sends = [
                asyncio.ensure_future(
                    self._producer.send(topic, value.encode(), partition=partition)
                )
                for partition, value in writes
            ]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

        self._wait(all_of_them())

    def send_offsets(self, topic: str, consumed: Consumed) -> None:
        at = {ottla.TopicPartition(topic, consumed.partition): consumed.next}
        self._wait(self._transaction.send_offsets(consumed.group, at))

    def end(self, *, commit: bool) -> Answer:
        error = None if commit else Trouble("a change of mind")
        try:
            self._wait(self._transaction.__aexit__(error and type(error), error, None))
        except TransactionUnresolved:
            return Answer.UNKNOWN
        except (Trouble, Over):
            return Answer.FAILED
        return Answer.OK

    def close(self) -> None:
        self._wait(self._producer.close())


class ConfluentSession:
    """confluent-kafka; those that are abandoned live on, as librdkafka may wait to end them."""

    _all: Final[list[object]] = []

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        settings = {"bootstrap.servers": bootstrap, **LIBRDKAFKA}
        timeout_ms = max(timeout_ms, SHORTEST_OF_LIBRDKAFKA_MS)
        self._producer = ConfluentProducer(
            {
                **settings,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                # Not less than a record may take, librdkafka says.
                "message.timeout.ms": timeout_ms,
            }
        )
        self._consumer = Consumer({**settings, "group.id": transactional_id})
        self._all.extend([self._producer, self._consumer])
        self._call(lambda: self._producer.init_transactions(PATIENCE))

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaException as error:
            raise (Over if error.args[0].fatal() else Trouble)(error) from error
        except SystemError as error:
            # A fatal error is raised by whatever callback comes next, which may be one of ours.
            raise Over(error) from error

    def begin(self) -> None:
        try:
            self._call(self._producer.begin_transaction)
        except Trouble as error:
            raise Over(error) from error

    def send(self, topic: str, writes: Sequence[Write]) -> None:
        failures: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failures.append(error)

        for partition, value in writes:
            self._call(
                partial(
                    self._producer.produce,
                    topic,
                    value,
                    partition=partition,
                    on_delivery=delivered,
                )
            )
        self._call(lambda: self._producer.flush(PATIENCE))
        if len(self._producer) or failures:
            raise Trouble(failures)

    def send_offsets(self, topic: str, consumed: Consumed) -> None:
        at = [TopicPartition(topic, consumed.partition, consumed.next)]
        member = self._consumer.consumer_group_metadata()
        self._call(lambda: self._producer.send_offsets_to_transaction(at, member, PATIENCE))

    def end(self, *, commit: bool) -> Answer:
        ask = self._producer.commit_transaction if commit else self._producer.abort_transaction
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                ask(PATIENCE)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    return Answer.FAILED
                if not error.args[0].retriable():
                    return Answer.UNKNOWN
            except SystemError:
                return Answer.UNKNOWN
            else:
                return Answer.OK
        return Answer.UNKNOWN

    def close(self) -> None:
        """There is nothing to do in order."""


_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_REFUSED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class RawSession:
    """Requests of the first or the second version of the protocol; each is sent until answered."""

    def __init__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int, *, version: int
    ) -> None:
        self._bootstrap = bootstrap
        self._version = version
        self._raw: RawClient | None = None
        self._producer = RawProducer(self._connected(), transactional_id)
        self._in_doubt = False
        self._lost = False
        code = self._ask(lambda: self._producer.init(timeout_ms).error_code)
        if code:
            raise Over(code)

    def _connected(self) -> RawClient:
        deadline = time.monotonic() + PATIENCE
        while self._raw is None:
            try:
                self._raw = RawClient(self._bootstrap)
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(PAUSE)
        return self._raw

    def _ask(self, ask: Callable[[], int]) -> int:
        """The error code, once it is one that stays; `_lost` says whether answers are missing."""
        self._lost = False
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._producer.raw = self._connected()
                code = ask()
            except OSError:
                self._lost = True
                self.close()
            else:
                if code != ErrorCode.CONCURRENT_TRANSACTIONS and code not in _PASSING:
                    return code
                self._lost = self._lost or code in _PASSING
            if time.monotonic() > deadline:
                raise Over("no answer that stays")
            time.sleep(PAUSE)

    def _done(self, ask: Callable[[], int]) -> None:
        code = self._ask(ask)
        if code:
            self._in_doubt = True
            raise Trouble(code)

    def begin(self) -> None:
        if self._in_doubt:
            raise Over("sequences are in doubt")

    def send(self, topic: str, writes: Sequence[Write]) -> None:
        for partition, values in by_partition(writes).items():
            if self._version == 1:
                self._done(partial(self._add, topic, partition))
            records = self._producer.batch(topic, partition, *values)
            self._done(partial(self._produce, self._producer.request(topic, {partition: records})))

    def _add(self, topic: str, partition: int) -> int:
        return max(self._producer.add(topic, partition))

    def _produce(self, request: ProduceRequest) -> int:
        version = 11 if self._version == 1 else 12
        answer = self._producer.raw.ask("produce", version, request)
        return int(answer.responses[0].partition_responses[0].error_code)

    def send_offsets(self, topic: str, consumed: Consumed) -> None:
        version = 3 if self._version == 1 else 5
        if self._version == 1:
            self._done(lambda: self._producer.add_offsets(consumed.group))
        self._done(
            lambda: RawOffsets(self._producer.raw, topic, consumed.group).commit_in(
                self._producer, consumed.next, version=version, partition=consumed.partition
            )
        )

    def end(self, *, commit: bool) -> Answer:
        def ask() -> int:
            if self._version == 1:
                return self._producer.end(commit=commit).error_code
            return self._producer.end_and_go_on(commit=commit).error_code

        try:
            code = self._ask(ask)
        except Over:
            return Answer.UNKNOWN
        if code == 0:
            # With a new epoch, sequences start over.
            self._in_doubt = self._in_doubt and self._version == 1
            return Answer.OK
        self._in_doubt = True
        return Answer.FAILED if code in _REFUSED and not self._lost else Answer.UNKNOWN

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()
        self._raw = None
