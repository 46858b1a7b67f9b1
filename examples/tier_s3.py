"""Tiered storage: old segments move to an object store, and consumers read as before.

    python examples/tier_s3.py s3://bucket/prefix
    python examples/tier_s3.py                      # a directory stands for the store

Keys and region come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION;
AWS_ENDPOINT_URL for stores that speak S3's protocol elsewhere).
"""

# %%
from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import ottla
from ottla.objects.location import open_store, parse_location
from ottla.sync import Admin, Producer, Reader
from ottla.tier.reader import ListingSource, RemoteReader
from ottla.tier.store.storage_manager import RemoteStorageManager

MIB: Final = 1024 * 1024
RECORDS: Final = 10_000
directory = tempfile.TemporaryDirectory()
URL: Final = sys.argv[1] if len(sys.argv) > 1 else Path(directory.name).as_uri()

# %% The broker knows the store. Copies are looked for twice a second here, each 30 s by default.
settings = {
    "remote.log.storage.system.enable": "true",
    "rsm.config.url": URL,
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}
broker = ottla.EmbeddedBroker(config=settings).start()

# %% A topic that keeps about one segment on the local disk, and everything in the store.
tiered = {
    "remote.storage.enable": "true",
    "segment.bytes": str(MIB),
    "local.retention.bytes": str(MIB),
    "retention.ms": "-1",
}
broker.create_topic("history", configs=tiered)

dice = random.Random(1)
values = [dice.randbytes(1000) for _ in range(RECORDS)]
with Producer(broker.bootstrap) as producer:
    for start in range(0, RECORDS, 500):
        records = [ottla.ProducerRecord(value) for value in values[start : start + 500]]
        producer.send_many("history", records)

# %% Wait until old segments are in the store and gone from the disk.
with Admin(broker.bootstrap) as admin:
    local = 0
    while local < RECORDS // 2:
        time.sleep(0.2)
        (found,) = admin.list_offsets(["history"], "earliest-local").values()
        local = found.offset
    (found,) = admin.list_offsets(["history"], "latest-tiered").values()
    copied = found.offset + 1
print("most records are in the store alone")

# %% Readers do not notice: the log still begins at 0.
with Reader(broker.bootstrap, "history", start="earliest", stop="latest") as reader:
    through_broker = [record.value for record in reader.records()]
broker.stop()
assert through_broker == values
print(f"{len(through_broker)} records read through the broker")


# %% Copied records can be read from the store without a broker.
async def read_store() -> list[bytes]:
    location = parse_location({"rsm.config.url": URL})
    storage = RemoteStorageManager(open_store(location), location.prefix, "")
    reader = RemoteReader(storage, ListingSource(storage))
    plan = await reader.plan("history", 0)
    return [value async for rows in reader.read(plan) for value in rows["value"].to_pylist()]


from_store = asyncio.run(read_store())
directory.cleanup()
assert len(from_store) >= copied
assert from_store == values[: len(from_store)]
print("what was copied is read without a broker")
