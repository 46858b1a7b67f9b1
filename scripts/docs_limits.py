"""The page of limits: what each bounds, its number, and why. The numbers are read from the code.

    python scripts/docs_limits.py     prints the page

mkdocs calls `on_files`, so the page exists in the site only and cannot be out of date.

A limit is a constant (`module:NAME`) or a configuration key, whose default is shown. Further
numbers in a row are written `{module:NAME unit}` and read from the code, too.
"""

from __future__ import annotations

import math
import re
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata.config.broker_keys import BROKER_CONFIGS
from ottla.metadata.config.keys import GROUP_CONFIGS, TOPIC_CONFIGS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
INTRODUCTION: Final = """# Limits

Everything that a client, a disk or a peer could make grow has a limit. The numbers are read from
the code when this page is built. If the name is a configuration key or an argument, the number is
its default, and you can change it; other names are constants in the code.
"""


class Limit(NamedTuple):
    """One row; `source` is `module:CONSTANT`, or a configuration key."""

    what: str
    source: str
    unit: str
    reason: str
    argument: str = ""  # by which users set it


LIMITS: Final[dict[str, tuple[Limit, ...]]] = {
    "Memory and threads of a broker": (
        Limit(
            "requests read and not answered yet, all connections",
            "queued.max.request.bytes",
            "bytes",
            "above it no connection is read, so clients cannot fill the memory with requests",
        ),
        Limit(
            "answers that clients have not read yet, all connections",
            "ottla.queued.max.response.bytes",
            "bytes",
            "above it fetches carry one batch; at twice it the slowest client is disconnected",
        ),
        Limit(
            "time without reading for a client while that budget is used up",
            "ottla.broker.serving.answer_memory:STALL_SECONDS",
            "seconds",
            "then it is disconnected: others need the memory",
        ),
        Limit(
            "requests of one connection that wait behind another",
            "ottla.broker.serving.connection:MAX_WAITING_BYTES",
            "bytes",
            "then the connection is not read until the first is answered",
        ),
        Limit(
            "produce requests of one connection that wait for a sync",
            "ottla.broker.serving.connection:MAX_PIPELINED",
            "count",
            "enough to keep the disk busy",
        ),
        Limit(
            "tail cache: newest batches of all logs",
            "ottla.log.tail:DEFAULT_TAIL_BYTES",
            "bytes",
            "consumers at the end are served from memory; the cost must not grow with partitions",
        ),
        Limit(
            "tail cache: share of one log",
            "ottla.log.tail:LOG_TAIL_BYTES",
            "bytes",
            "one busy partition must not push all others out",
        ),
        Limit(
            "threads for syncs, opening, recovery and file reads",
            "ottla.broker.workers:BLOCKING_THREADS",
            "count",
            "the event loop never waits for a disk; more threads only contend for it",
        ),
        Limit(
            "threads that read records from the disk for consumers",
            "ottla.broker.workers:READER_THREADS",
            "",
            "further consumers of old records wait for one; syncs have other threads",
        ),
        Limit(
            "the journal on disk",
            "ottla.journal.bytes",
            "bytes",
            "when it is full each log is synced by itself until a part of it is free again",
        ),
        Limit(
            "room on a disk that the journal leaves to the logs",
            "ottla.log.journal.files:SPARE_BYTES",
            "bytes",
            "logs can do without a journal, not without room",
        ),
        Limit(
            "new batches of a partition in one write to the journal",
            "ottla.journal.extent.max.bytes",
            "bytes",
            "more is synced in the log itself, so that it is not written twice",
        ),
        Limit(
            "one write to the journal",
            "ottla.log.journal.writer:SLOT_MAX_BYTES",
            "bytes",
            "more is as fast in the logs themselves; only partitions with little each fill up to"
            " twice as much",
        ),
        Limit(
            "indexes of segments that do not grow any more, all logs",
            "ottla.log.sealed:INDEX_BYTES",
            "bytes",
            "read from disk when needed; aborted transactions are among them",
        ),
        Limit(
            "open files of such segments",
            "ottla.log.sealed:MAX_DESCRIPTORS",
            "count",
            "fewer where the system grants fewer; a closed one is opened again to read it",
        ),
        Limit(
            "keys that one pass of compaction remembers",
            "ottla.log.compaction:MAX_KEYS",
            "count",
            "as much memory as Kafka's buffer takes; larger logs take several passes",
        ),
        Limit(
            "tiered reads kept for a retry, and once more for read-ahead",
            "remote.result.cache.bytes",
            "bytes",
            "cold reads must not grow with the number of consumers",
        ),
    ),
    "Requests and connections": (
        Limit(
            "size of a request",
            "socket.request.max.bytes",
            "bytes",
            "Kafka's; a longer one closes the connection before memory is spent on it",
        ),
        Limit(
            "connections",
            "max.connections",
            "count",
            "Kafka's default, which is no limit; lower it to protect the process",
        ),
        Limit(
            "connections from one address",
            "max.connections.per.ip",
            "count",
            "Kafka's default, which is no limit",
        ),
        Limit(
            "time until an idle connection is closed",
            "connections.max.idle.ms",
            "ms",
            "Kafka's; a vanished client holds a descriptor until then",
        ),
        Limit(
            "time for a request to arrive completely",
            "ottla.broker.running.jobs:HALF_FRAME_SECONDS",
            "seconds",
            "a client that is then slower than "
            "{ottla.broker.running.jobs:MIN_FRAME_RATE bytes/s} is disconnected",
        ),
        Limit(
            "fetch sessions",
            "max.incremental.fetch.session.cache.slots",
            "count",
            "Kafka's; the oldest idle session is evicted and its client sends full requests",
        ),
        Limit(
            "characters of a pattern that a consumer subscribes to",
            "ottla.broker.coordinators.regex:MAX_PATTERN_LENGTH",
            "count",
            "matching takes linear time, so the length of the pattern bounds it",
        ),
        Limit(
            "wait for a change of the metadata",
            "ottla.metadata.metadata:CHANGE_WAIT_SECONDS",
            "seconds",
            "then the request fails with REQUEST_TIMED_OUT and nothing is changed",
        ),
    ),
    "Before authentication": (
        Limit(
            "clients that authenticate at the same time",
            "ottla.authentications.max",
            "count",
            "bounds the memory of strangers; others wait unread, and addresses take turns",
        ),
        Limit(
            "wait for a slot to authenticate",
            "ottla.lobby.wait.ms",
            "ms",
            "a client has given up by then",
        ),
        Limit(
            "TLS handshake and login together",
            "ottla.authentication.timeout.ms",
            "ms",
            "a client that sends a byte now and then must not keep a slot",
        ),
        Limit(
            "one frame before the login",
            "sasl.server.max.receive.size",
            "bytes",
            "the longest token of a login has a few KiB",
        ),
        Limit(
            "requests before the login",
            "ottla.broker.access.authentication:MAX_FRAMES",
            "count",
            "the longest exchange has fewer than half of them",
        ),
        Limit(
            "bytes of a TLS handshake",
            "ottla.security.tls_channel:MAX_HANDSHAKE_BYTES",
            "bytes",
            "a hello is much smaller; twice as much where clients show certificates",
        ),
        Limit(
            "steps of TLS handshakes in one turn of the event loop",
            "ottla.broker.access.tls_connection:STEPS_A_TURN",
            "count",
            "each takes most of a millisecond, and others are served in between",
        ),
        Limit(
            "encrypted bytes that wait for one client",
            "ottla.security.tls_channel:AHEAD_BYTES",
            "bytes",
            "the rest of an answer waits as it is, without a private copy",
        ),
        Limit(
            "threads that hash passwords",
            "ottla.broker.access.door:PASSWORD_THREADS",
            "count",
            "a flood of logins delays logins, and nothing else",
        ),
        Limit(
            "longest delay of the answer to a failed login",
            "ottla.broker.access.lobby:MAX_DELAY_SECONDS",
            "seconds",
            "it doubles with each failure of an address, and a success ends it",
        ),
        Limit(
            "answers to failed logins that are held back",
            "ottla.broker.access.refusals:MAX_HELD",
            "count",
            "each keeps a connection open; further ones are closed without an answer",
        ),
        Limit(
            "addresses whose failures are remembered",
            "ottla.broker.access.lobby:MAX_ADDRESSES",
            "count",
            "the oldest is forgotten first",
        ),
        Limit(
            "open files that are kept from connections",
            "ottla.broker.running.run:RESERVED_FILES",
            "count",
            "strangers cannot keep the broker from opening logs",
        ),
    ),
    "Records": (
        Limit(
            "size of a batch",
            "message.max.bytes",
            "bytes",
            "Kafka's; also `max.message.bytes` of a topic",
        ),
        Limit(
            "a batch after decompression",
            "ottla.wire.compression:DECOMPRESSION_HARD_LIMIT",
            "bytes",
            "stops compression bombs; smaller batches may grow to "
            "{ottla.wire.compression:DECOMPRESSION_RATIO count} times their size, and always to "
            "{ottla.wire.compression:DECOMPRESSION_FLOOR bytes}",
        ),
        Limit(
            "records of a batch that the event loop checks itself",
            "ottla.log.validate:QUICK_RECORDS",
            "count",
            "larger batches, also those above {ottla.log.validate:QUICK_BYTES bytes}, are "
            "checked in a thread, so that other clients do not wait",
        ),
        Limit(
            "idempotent producers remembered by a partition",
            "ottla.log.producer_state:MAX_PRODUCERS",
            "count",
            "a client can invent ids; the least recently used one is forgotten",
        ),
        Limit(
            "batches remembered of one producer",
            "ottla.log.producer_state:REMEMBERED_BATCHES",
            "count",
            "Kafka's: `max.in.flight.requests.per.connection` of an idempotent producer",
        ),
        Limit(
            "offsets of one segment",
            "ottla.log.segment:MAX_RELATIVE_OFFSET",
            "count",
            "an index stores offsets as 32-bit numbers; a segment rolls before that",
        ),
    ),
    "Fetching": (
        Limit(
            "records in one fetch response",
            "ottla.broker.serving.answer_memory:MAX_READ_BYTES",
            "bytes",
            "reading from files holds up other clients; at least one batch is returned",
        ),
        Limit(
            "bytes that a fetch waits for",
            "ottla.broker.handlers.fetch:MAX_MIN_BYTES",
            "bytes",
            "`fetch.min.bytes` above it would wait for more than one response can hold",
        ),
        Limit(
            "requests of one connection served in a row",
            "ottla.broker.serving.connection:MAX_REQUESTS_AT_ONCE",
            "count",
            "a few milliseconds; then other connections have their turn",
        ),
    ),
    "Names and topics": (
        Limit(
            "length of a topic's name",
            "ottla.metadata.names:MAX_TOPIC_NAME_LENGTH",
            "count",
            "Kafka's: name, partition and suffix must fit a file name",
        ),
        Limit(
            "partitions of a topic",
            "ottla.metadata.changes.topics:MAX_PARTITIONS_PER_TOPIC",
            "count",
            "bounds what one request can make a broker hold; far above what one node can serve",
        ),
        Limit(
            "length of a configuration value",
            "ottla.metadata.config.types:MAX_VALUE_LENGTH",
            "count",
            "values are kept in every node's memory",
        ),
        Limit(
            "configuration file",
            "ottla.metadata.config.broker:MAX_FILE_BYTES",
            "bytes",
            "a larger one is not a configuration file",
        ),
    ),
    "Share groups": (
        Limit(
            "records in flight of a partition and a group",
            "share.partition.max.record.locks",
            "count",
            "Kafka's; each costs memory and durable state. See the next row",
        ),
        Limit(
            "the most a group may ask for",
            "group.share.max.partition.max.record.locks",
            "count",
            "a broker setting; it can be raised to "
            "{ottla.metadata.config.broker_keys:MAX_RECORD_LOCKS count}",
        ),
        Limit(
            "deliveries of a record",
            "share.delivery.count.limit",
            "count",
            "Kafka's; then the record is given up",
        ),
        Limit(
            "lock of a record",
            "share.record.lock.duration.ms",
            "ms",
            "Kafka's; then the record is delivered again",
        ),
        Limit(
            "members of a group",
            "group.share.max.size",
            "count",
            "Kafka's; each costs memory and heartbeats",
        ),
        Limit(
            "partitions in one session",
            "ottla.sharing.sessions:MAX_SESSION_PARTITIONS",
            "count",
            "a client could add partitions without end",
        ),
        Limit(
            "share groups on one connection",
            "ottla.sharing.sessions:MAX_CONNECTION_GROUPS",
            "count",
            "a connection is one member of one group; more is a mistake or an attack",
        ),
        Limit(
            "attempts to write a dead letter",
            "ottla.broker.shares.dead_letters:ATTEMPTS",
            "count",
            "then the record is given up without a letter, and its offset is logged",
        ),
        Limit(
            "runs of a window in one description",
            "ottla.sharing.describing:MOST_RUNS",
            "count",
            "more cannot be drawn; the description says that it was cut",
        ),
        Limit(
            "partitions described with their windows in one request",
            "ottla.broker.handlers.share_offsets:MOST_WINDOWS",
            "count",
            "a request must not make a response of any size",
        ),
    ),
    "Console and ottla top": (
        Limit(
            "partitions asked for in one sample",
            "ottla.console.budget:MOST_PARTITIONS",
            "count",
            "looking must cost the cluster little; fewer where it answers slowly",
        ),
        Limit(
            "groups asked for in one sample",
            "ottla.console.budget:MOST_GROUPS",
            "count",
            "as above",
        ),
        Limit(
            "series with a history",
            "ottla.console.history:MOST_RINGS",
            "count",
            "the quietest lose theirs, and the page says that it is not kept",
        ),
        Limit(
            "findings that are listed",
            "ottla.console.attention:MOST_FINDINGS",
            "count",
            "the others are counted",
        ),
    ),
    "Tiered storage": (
        Limit(
            "size of a tiered segment",
            "ottla.tier.catalogue.segments:MAX_SEGMENT_SIZE",
            "bytes",
            "Kafka's event stores the size as a 32-bit number",
        ),
        Limit(
            "lowest speed of copies",
            "ottla.tier.store.pacing:FLOOR",
            "bytes/s",
            "copies give way to clients, but never stop",
        ),
        Limit(
            "chunks read ahead for one consumer",
            "ottla.tier.reading.read_ahead:CHUNKS_AHEAD",
            "count",
            "one arrives while one is sent; a chunk has about "
            "{ottla.tier.reading.read_ahead:CHUNK_BYTES bytes}",
        ),
    ),
    "Queries of tables": (
        Limit(
            "rows of the log beside a table's files, in memory",
            "ottla.tables.reading:TAIL_BYTES",
            "bytes",
            "a worker that has fallen behind must not fill the reader's memory",
            "max_tail_bytes",
        ),
        Limit(
            "time without a record from a leader that has more",
            "ottla.tables.reading:QUIET_SECONDS",
            "seconds",
            "then the query fails instead of waiting for ever",
        ),
        Limit(
            "files of a frame in Spark",
            "ottla.spark.tables.frames:MAX_FILES",
            "count",
            "Spark asks for the status of each before a query starts",
        ),
    ),
    "Clients": (
        Limit(
            "size of a response",
            "ottla.client.cluster.exchange:MAX_RESPONSE_BYTES",
            "bytes",
            "a wrong length must not make a client allocate gigabytes",
        ),
        Limit(
            "time of one call with all its retries",
            "ottla.client.cluster.cluster:API_TIMEOUT",
            "seconds",
            "nothing waits without end",
            "api_timeout",
        ),
        Limit(
            "time of one request",
            "ottla.client.cluster.connection:REQUEST_TIMEOUT",
            "seconds",
            "then the connection is closed and the call is retried",
            "request_timeout",
        ),
        Limit(
            "Reader: bytes fetched ahead",
            "ottla.client.reader.reader:PREFETCH",
            "bytes",
            "enough to keep the decoder busy",
            "prefetch",
        ),
        Limit(
            "Consumer: time between two calls",
            "ottla.client.consumer.consumer:MAX_POLL_INTERVAL",
            "seconds",
            "then the group gives its partitions to other members",
            "max_poll_interval",
        ),
        Limit(
            "Producer: batches in flight of a partition",
            "ottla.client.producer.accumulator:MAX_IN_FLIGHT",
            "count",
            "brokers remember that many batches of a producer",
        ),
        Limit(
            "share_worker: records waiting for a retry",
            "ottla.client.share.worker:MAX_WAITING",
            "count",
            "each keeps a lock that has to be renewed",
        ),
        Limit(
            "streams: messages of a file read ahead of a group's slowest consumer",
            "ottla.streams.dispatch:MAX_QUEUED",
            "count",
            "then reading waits for that consumer; also at "
            "{ottla.streams.dispatch:MAX_QUEUED_BYTES bytes} of payloads",
        ),
        Limit(
            "streams: entries asked of Redis at once",
            "ottla.streams.backends.redis_source:BATCH",
            "count",
            "the server serves nobody else while it collects them; a member of a balanced group "
            "asks for {ottla.streams.backends.redis_source:BATCH_BALANCED count}, to leave some "
            "for others",
            "RedisOptions(batch=)",
        ),
        Limit(
            "streams: memory kept for the frames of a `.ss` file that is written",
            "ottla.streams.ss.frames:KEPT",
            "bytes",
            "it is used again for every batch; fresh memory costs more than the work",
        ),
    ),
    "Offset stores": (
        Limit(
            "a position",
            "ottla.offsets.types:MAX_POSITION",
            "power",
            "entry ids of Redis need that much; all other sequences are smaller",
        ),
        Limit(
            "name of a consumer or stream, in UTF-8",
            "ottla.offsets.types:MAX_NAME_BYTES",
            "bytes",
            "names become parts of index keys and file lines",
        ),
        Limit(
            "wait for the lock of another process",
            "ottla.offsets.lockfile:DEFAULT_LOCK_TIMEOUT",
            "seconds",
            "then `OffsetLockTimeout` is raised",
            "lock_timeout",
        ),
        Limit(
            "run time of a hook",
            "ottla.offsets.hooks:DEFAULT_HOOK_TIMEOUT",
            "seconds",
            "a slow hook must not hold up the program that saves",
            "timeout",
        ),
    ),
    "Schemas and typed columns": (
        Limit(
            "leaf columns of a schema",
            "ottla.schemas.bounds:MAX_LEAVES",
            "count",
            "each has buffers and Parquet statistics of its own",
        ),
        Limit(
            "depth of columns",
            "ottla.schemas.bounds:MAX_DEPTH",
            "count",
            "deeper ones are not tested by the engines that read them",
        ),
        Limit(
            "characters of DDL",
            "ottla.schemas.ddl_grammar:MAX_TEXT",
            "count",
            "the largest number of columns needs far fewer",
        ),
        Limit(
            "steps of a decode program",
            "ottla.schemas.programs:MAX_OPERATIONS",
            "count",
            "a named type may be used many times over, so a small schema may need many",
        ),
        Limit(
            "columns of one chunk of records",
            "ottla.schemas.programs:MAX_OUTPUT",
            "bytes",
            "a row may be far larger than its record; a single record beyond it is `too_large`",
        ),
        Limit(
            "entries without bytes in one Avro record",
            "ottla.schemas.program_kernels:MAX_EMPTY",
            "count",
            "their number is only claimed; beyond it the record is `too_large`",
        ),
        Limit(
            "depth of a JSON value",
            "ottla.schemas.json_kernels:MAX_DEPTH",
            "count",
            "Python's parser recurses; beyond it the value is `too_large`",
        ),
        Limit(
            "message indexes of a framed Protobuf value",
            "ottla.schemas.framing:MAX_INDEXES",
            "count",
            "messages nest no deeper in a schema that columns can hold",
        ),
        Limit(
            "compiled schemas that are kept",
            "ottla.schemas.decode:MAX_PROGRAMS",
            "count",
            "a topic has a handful; others are compiled again",
        ),
    ),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/limits.md", content=limits_page()))
    return files


def limits_page() -> str:
    """The page, with numbers of the code as it is."""
    parts = [INTRODUCTION]
    for title, limits in LIMITS.items():
        rows = "\n".join(
            f"| {each.what} | {shown(value(each.source), each.unit)} | {_name(each)} "
            f"| {filled(each.reason)} |"
            for each in limits
        )
        parts.append(f"## {title}\n\n| what | limit | name | why |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def value(source: str) -> float:
    """The value of a limit in the code."""
    module, _, name = source.partition(":")
    return float(getattr(import_module(module), name)) if name else _default(module)


def _default(key: str) -> float:
    for table in (GROUP_CONFIGS, TOPIC_CONFIGS, BROKER_CONFIGS):
        if key in table:
            return float(table[key].default or "nan")
    raise LookupError(f"{key} is no configuration key")


def shown(number: float, unit: str) -> str:
    """The number as people write it."""
    if unit == "power":  # a float has fewer bits than the number
        return f"2^{math.frexp(number)[1] - 1} - 1"
    if unit in ("bytes", "bytes/s"):
        per = unit.removeprefix("bytes")
        for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
            if number >= size and (number % size == 0 or number + 1 == 2 * GIB):
                return f"{(number + (number + 1 == 2 * GIB)) / size:g} {name}{per}"
        return f"{number:,.0f} bytes{per}"
    if unit == "seconds":
        return f"{number:g} s"
    if unit == "ms":
        return f"{number / 60_000:g} min" if number >= 60_000 else f"{number / 1000:g} s"
    return f"{number:,.0f}"


def filled(reason: str) -> str:
    """The reason with its numbers."""
    return re.sub(
        r"\{([\w.]+:\w+) ([\w/]+)\}", lambda found: shown(value(found[1]), found[2]), reason
    )


def _name(limit: Limit) -> str:
    """What sets it, or the constant; names may break after dots and underscores on a phone."""
    name = limit.argument or limit.source.rpartition(":")[2]
    breakable = re.sub("([._])", r"\1<wbr>", name)
    return f"<code>{breakable}</code>"


if __name__ == "__main__":
    print(limits_page())
