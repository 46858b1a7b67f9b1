"""Write docs/reference/compatibility.md from the table of served APIs.

python scripts/generate_compatibility.py            write the page
python scripts/generate_compatibility.py --check    say whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.broker.serving.apis import SERVED
from ottla.registry.routes import ROUTES
from ottla.wire.messages import message
from ottla.wire.schema import API_NAMES

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "compatibility.md"

HEAD = """# Compatibility

Made by `scripts/generate_compatibility.py` from the table that ApiVersions answers from; do not
edit the tables here.

Ottla speaks the Kafka protocol of Kafka 4 with message format v2. The judges are real clients:
confluent-kafka (librdkafka), kafka-python and aiokafka run against the broker in
`tests/conformance`, the Java client and Kafka's command-line tools where a Java runtime and Maven
are present.

## APIs served

| key | API | versions |
|---|---|---|
"""

NOT_SERVED = """
## APIs not served

Clients and tools see from ApiVersions that these are not there. What to do instead is told in
[what is not there](not-there.md).

"""

MISSING = """
## What is missing

- **Two-phase commit** (KIP-939: InitProducerId v6) and WriteTxnMarkers v2. Everything else of
  [transactions](../how-to/transactions.md) is served, in both versions of the protocol.
- **Security**: Kerberos and delegation tokens.
- **Replication**: a log exists once. The replicas of a partition are the nodes that may lead it, as
  many as there are [nodes](../how-to/nodes.md) at most.
- Older message formats (v0, v1): refused with INVALID_RECORD, as Kafka 4 does.
- OffsetCommit and OffsetFetch v10 (topic ids): clients use v9.
- **Groups of Kafka Streams** by the new protocol (KIP-1071); Kafka Streams uses the classic one.
- Telemetry (KIP-714): clients do without.

## Static members

Members with a `group.instance.id` (KIP-345) of confluent-kafka, kafka-python and aiokafka come back
to their partitions without a rebalance; `tests/conformance/test_static_members.py` holds that.
A member whose id is taken by another is fenced (82): confluent-kafka 2.16 ends with a fatal error,
kafka-python 3.0.12 raises `FencedInstanceIdError` when it commits. aiokafka 0.14 does not name its
instance in heartbeats and commits, so that no broker can fence it: it is told that its member id is
unknown and joins again, and two of them with one instance id take the place from each other in
turns.

## Where Ottla differs on purpose

- `acks=all` is answered when the data is durable on disk; Kafka answers from the page cache and
  relies on replicas. `ottla.flush.mode=os` gives Kafka's behaviour.
- ACLs cannot open the broker's own topics; see [permissions](permissions.md).
- A topic created by asking for its metadata is ready in the same answer.
- Internal topics have one replica by default.
- A request that joins a transaction while the one before is still being marked waits for that, up
  to a second, where Kafka answers CONCURRENT_TRANSACTIONS and clients pause before they try again.
- A transaction that is too old is aborted at once; Kafka looks for such every ten seconds
  (`transaction.abort.timed.out.transaction.cleanup.interval.ms`).
- DescribeShareGroupOffsets has tagged fields of Ottla's own (tags from 10000 on: records in flight,
  completed deliveries, and a question between nodes); clients that do not know them skip them.
  So have ShareFetch and ShareAcknowledge (to acquire without records, to release without counting).
- A share fetch that waits ends as soon as a record is released. Kafka 4.3 looks at waiting fetches
  when an acknowledgement moves the start of the window, which a release alone does not: there the
  record comes with the next fetch, at the latest after `max_wait` (half a second by default).
- Share groups: see the page on [share groups](../explanation/share-groups.md).
"""


REGISTRY = """
## The schema registry

Confluent's REST API, as far as confluent-kafka's client uses it and some more. Not there:
exporters, keys of encryption (KEK, DEK) and associations, which are answered with 404; the
settings `alias`, `defaultMetadata`, `overrideMetadata`, `defaultRuleSet` and `overrideRuleSet`,
which are refused. Rules (`ruleSet`) are stored and given back, not executed. A GUID is the MD5 of
the schema with its references, metadata and rules; another registry may give the same schema
another one.

Different from Confluent's on purpose: versions and ids are never given a second time, also after a
hard delete; and a version that a soft-deleted one references cannot be hard-deleted.

| method and path |
|---|
"""


def page() -> str:
    rows = []
    for key, served in sorted(SERVED.items()):
        assert key in API_NAMES
        versions = f"{served.min_version} to {served.max_version}"
        if served.listed_min is not None:
            versions += f" (listed from {served.listed_min}, as Kafka does)"
        rows.append(f"| {key} | {_name(key)} | {versions} |\n")
    missing = [f"- {key} {_name(key)}\n" for key in sorted(API_NAMES.keys() - SERVED.keys())]
    paths = "".join(f"| `{route}` |\n" for route in ROUTES)
    return HEAD + "".join(rows) + NOT_SERVED + "".join(missing) + MISSING + REGISTRY + paths


def _name(key: int) -> str:
    return message(key, request=True).root.__name__.removesuffix("Request")


def main() -> int:
    if "--check" not in sys.argv:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() != page():
        print(
            "docs/reference/compatibility.md is out of date; run scripts/generate_compatibility.py"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
