"""A broker that stands still, as under SIGSTOP, a suspended laptop or a frozen virtual machine.

Clients wait; when it goes on everything they asked is answered and nothing acknowledged is lost.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.raw_client import RawClient, batch, fetch_request, produce_request, values_of

if TYPE_CHECKING:
    from pathlib import Path

STOPPED_SECONDS: Final = 60.0 if soak() else 3.0
LONG_POLL_MS: Final = int(1000 * (STOPPED_SECONDS + PATIENCE_SECONDS))


def test_clients_wait_for_a_broker_that_is_stopped_for_a_while(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        clients = [RawClient(broker.bootstrap) for _ in range(4)]
        admin, writer, reader, half = clients
        for client in clients:
            client.wait_longer(STOPPED_SECONDS + PATIENCE_SECONDS)
        topics = [CreatableTopic(name, 1, -1) for name in ("orders", "quiet")]
        admin.ask("create_topics", 5, CreateTopicsRequest(topics))
        acknowledged = [b"before"]
        assert writer.produce("orders", batch(b"before")).error_code == ErrorCode.NONE
        reader.send("fetch", 12, fetch_request({("quiet", 0): 0}, max_wait_ms=LONG_POLL_MS))
        frame = half.frame("produce", 11, produce_request("orders", {0: batch(b"in two parts")}))
        half.send_bytes(frame[:20])

        broker.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        half.send_bytes(frame[20:])
        answers: list[int] = []
        sender = threading.Thread(
            target=lambda: answers.append(writer.produce("orders", batch(b"meanwhile")).error_code)
        )
        sender.start()
        # A new client's connection is taken by the kernel; its request waits, too.
        late = RawClient(broker.bootstrap)
        late.wait_longer(STOPPED_SECONDS + PATIENCE_SECONDS)
        late.send("produce", 11, produce_request("quiet", {0: batch(b"late")}))
        sender.join(max(0.0, stopped + STOPPED_SECONDS - time.monotonic()))
        assert not answers
        broker.process.send_signal(signal.SIGCONT)

        sender.join(PATIENCE_SECONDS)
        assert answers == [ErrorCode.NONE]
        acknowledged.append(b"meanwhile")
        assert answer_of(half) == ErrorCode.NONE
        acknowledged.append(b"in two parts")
        assert answer_of(late) == ErrorCode.NONE
        _, fetched = reader.receive("fetch", 12)
        assert values_of(fetched.responses[0].partitions[0]) == [b"late"]
        assert sorted(map(bytes, filter(None, values_of(admin.fetch_one("orders", 0))))) == sorted(
            acknowledged
        )
        for client in (*clients, late):
            client.close()
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap) as client:
            assert set(values_of(client.fetch_one("orders", 0))) == set(acknowledged)
            assert values_of(client.fetch_one("quiet", 0)) == [b"late"]
        assert broker.stop() == 0


def answer_of(client: RawClient) -> int:
    _, answer = client.receive("produce", 11)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code
