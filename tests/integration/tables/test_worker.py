"""Raw tables, from a real broker into Iceberg on a local disk."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from ottla.broker.hosting.cleaner import Cleaner
from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.client.security import PLAINTEXT
from ottla.metadata.config.broker import load_broker_config
from ottla.tables import rounds
from ottla.tables.errors import CommitRefused, TablePaused
from ottla.tables.format import Commit
from ottla.tables.iceberg import open_snapshot
from ottla.tables.inspecting import verify
from ottla.tables.pointer import read_pointers
from ottla.tables.settings import topic_settings
from ottla.tables.table_task import TableTask
from tests.support.clocks import ManualClock
from tests.support.log_batches import batch_of
from tests.support.sizes import SOAK
from tests.support.tables import DAY, Place


async def test_case_39_an_empty_topic_gets_an_empty_table(place: Place) -> None:
    await place.create(2)
    assert await place.run_once() == {0: 0, 1: 0}
    state = place.state()
    assert (state.snapshot, state.next, place.rows().num_rows) == (None, {0: 0, 1: 0}, 0)
    pointer = (await read_pointers(place.bootstrap))[place.topic]
    assert (pointer.topic_id, pointer.position, pointer.dlq) == (
        state.topic_id, {0: 0, 1: 0}, None,
    )  # fmt: skip
    snapshot = open_snapshot(pointer.metadata_location)
    assert (snapshot.files, snapshot.position) == ((), {0: 0, 1: 0})
    assert snapshot.columns.names[:3] == ["value", "_partition", "_offset"]


async def test_rows_have_all_that_records_have(place: Place) -> None:
    await place.create()
    headers = (("a", b"1"), ("a", None))
    await place.fill([b"one"], key=b"k", headers=headers, timestamp_ms=DAY + 5)
    await place.fill([None], timestamp_ms=0)
    assert await place.run_once() == {0: 2}
    first, second = place.rows().to_pylist()
    assert first["_timestamp"].isoformat() == "1970-01-02T00:00:00.005000+00:00"
    assert (first["value"], first["_key"], first["_tombstone"]) == (b"one", b"k", False)
    assert first["_headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert (first["_partition"], first["_offset"], first["_timestamp_type"]) == (0, 0, 0)
    assert (second["value"], second["_tombstone"], second["_schema_id"]) == (None, True, None)
    files = sorted(one.rpartition("/data/")[2].split("/")[0] for one in place.data_files())
    assert files == ["_day=1970-01-01", "_day=1970-01-02"]


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def records_of(turn: int, number: int, count: int) -> pa.Table:
    """Values of 0 to 96 bytes; every third key is null, every second record has headers."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[], [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]]
    return pa.table(
        {
            "key": pa.array(
                [None if i % 3 == 0 else b"%d" % (i % 100) for i in range(count)], pa.binary()
            ),
            "value": pa.array(
                [(b"%d %d %d " % (turn, number, i) * 8)[: i % 97] for i in range(count)],
                pa.binary(),
            ),
            "headers": pa.array([headers[i % 2] for i in range(count)], kind),
        }
    )


@pytest.mark.long
async def test_case_40_every_offset_is_there_once_with_its_bytes(place: Place) -> None:
    """Three commits, six partitions, every codec; a million records in `make soak`."""
    count = 55_556 if SOAK else 700
    await place.create(6)
    for turn in range(3):
        for number in range(6):
            codec = CODECS[(turn + number) % len(CODECS)]
            async with Producer(place.bootstrap, compression_type=codec) as producer:
                rows = records_of(turn, number, count)
                await producer.send_arrow(place.topic, rows, partition=number)
        await place.run_once()
    state = place.state()
    assert state.next == dict.fromkeys(range(6), 3 * count)
    assert len(state.commits) == 3
    settings = topic_settings(place.topic, {"ottla.table.enable": "true"})
    assert settings is not None
    tables = place.tables()
    async with Admin(place.bootstrap) as admin:
        found = await verify(place.bootstrap, PLAINTEXT, admin, tables, settings)
    files = tables.files(state)
    tables.close()
    assert [one.is_wrong for one in found] == [False] * len(found)
    assert sum(one.rows for one in files) == 18 * count
    assert all(one.partitions == (0, 5) for one in files)
    assert sorted(one.offsets or (0, 0) for one in files) == [
        (turn * count, (turn + 1) * count - 1) for turn in range(3)
    ]
    taken = place.rows()
    for number in range(6):
        part = taken.slice(number * 3 * count, 3 * count)
        assert part.column("_partition").to_pylist() == [number] * 3 * count
        assert part.column("_offset").to_pylist() == list(range(3 * count))
        written = pa.concat_tables([records_of(turn, number, count) for turn in range(3)])
        for name in ("_key", "value", "_headers"):
            sent = written.column(name.removeprefix("_")).to_pylist()
            assert part.column(name).to_pylist() == sent, (number, name)


async def test_case_42_a_table_begins_at_the_start_or_at_the_end(place: Place) -> None:
    await place.create(ottla_table_start="latest")
    await place.fill([b"before"])
    assert await place.run_once() == {0: 1}
    await place.fill([b"after"])
    assert await place.run_once() == {0: 2}
    assert place.values() == [b"after"]
    assert place.state().first == {0: 1}


async def test_case_43_aborted_records_are_left_out_and_open_ones_waited_for(place: Place) -> None:
    await place.create()
    async with Producer(place.bootstrap, transactional_id=f"{place.topic}-a") as producer:
        async with producer.transaction():
            await producer.send(place.topic, b"committed", partition=0)
        with suppress(KeyError):
            async with producer.transaction():
                await producer.send(place.topic, b"aborted", partition=0)
                raise KeyError
        await place.fill([b"plain"])
        async with producer.transaction():
            await producer.send(place.topic, b"open", partition=0)
            await place.fill([b"behind"])
            assert await place.run_once() == {0: 5}
            assert place.values() == [b"committed", b"plain"]
    assert await place.run_once() == {0: 8}
    assert place.values() == [b"committed", b"plain", b"open", b"behind"]


@pytest.mark.long
async def test_case_54_a_topic_made_anew_pauses_its_table(place: Place) -> None:
    await place.create()
    await place.fill([b"old"])
    await place.run_once()
    async with Admin(place.bootstrap) as admin:
        await admin.delete_topic(place.topic)
    await place.create()
    await place.fill([b"new"])
    with pytest.raises(TablePaused, match="TopicReplaced"):
        await place.run_once()
    assert place.values() == [b"old"]
    tables = place.tables()
    tables.rename(place.table, "old")
    tables.close()
    await place.run_once()
    assert place.values() == [b"new"]


@pytest.mark.long
async def test_case_60_a_commit_touches_64_days_at_most(place: Place) -> None:
    """Records of 1970, of 2250 and of 200 other days, in one batch and in no order."""
    await place.create(message_timestamp_after_max_ms=str(2**63 - 1))
    days = [0, 102_300, *(20_000 + 37 * one % 200 for one in range(200))]
    records = [ProducerRecord(b"%d" % day, partition=0, timestamp_ms=day * DAY + 7) for day in days]
    async with Producer(place.bootstrap) as producer:
        await producer.send_many(place.topic, records)
    assert await place.run_once() == {0: len(days)}
    rows = place.rows()
    assert rows.column("_offset").to_pylist() == list(range(len(days)))
    assert rows.column("value").to_pylist() == [b"%d" % day for day in days]
    times = rows.column("_timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    assert times.to_pylist() == [day * DAY + 7 for day in days]
    handle: Any = place.state().handle
    touched = [
        int(one.summary.additional_properties["changed-partition-count"])
        for one in handle.metadata.snapshots
    ]
    assert touched == [64, 64, 64, 10]
    folders = {one.rpartition("/data/")[2].split("/")[0] for one in place.data_files()}
    assert {"_day=1970-01-01", "_day=2250-02-02"} <= folders
    assert len(folders) == len(days)


@pytest.mark.long
@pytest.mark.parametrize("partition", ["hour(_timestamp)", "month(_timestamp)", "none"])
async def test_rows_are_divided_as_the_setting_says(place: Place, partition: str) -> None:
    await place.create(ottla_table_partition=partition)
    await place.fill([b"a"], timestamp_ms=DAY - 1)
    await place.fill([b"b"], timestamp_ms=DAY * 40)
    await place.run_once()
    assert place.values() == [b"a", b"b"]
    assert place.state().partition == partition
    folders = sorted(one.rpartition("/data/")[2].split("/")[0] for one in place.data_files())
    assert {
        "hour(_timestamp)": ["_hour=1970-01-01-23", "_hour=1970-02-10-00"],
        "month(_timestamp)": ["_month=1970-01", "_month=1970-02"],
    }.get(partition, folders) == folders


async def test_case_50_a_stale_handle_is_refused_whatever_the_retries_are(place: Place) -> None:
    await place.create()
    await place.run_once()
    handle: Any = place.state().handle
    with handle.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "4"})
    stale = place.state()
    await place.fill([b"one"])
    await place.run_once()
    tables = place.tables()
    commit = Commit("mine", stale.next, {0: 9}, stale.first, (), ())
    with pytest.raises(CommitRefused, match="has moved on"):
        tables.commit(stale, commit)
    tables.close()
    state = place.state()
    assert (state.next, "mine" in state.commits) == ({0: 1}, False)


@pytest.mark.long
async def test_case_51_others_may_touch_the_table(place: Place) -> None:
    await place.create(ottla_table_partition="none")
    await place.fill([b"one", b"two"])
    await place.run_once()
    handle: Any = place.state().handle
    handle.update_schema().add_column("note", StringType()).commit()
    handle = place.state().handle
    rows = handle.scan().to_arrow()
    handle.overwrite(rows)  # compacts, deletes no row
    handle = place.state().handle
    handle.append(pa.table({"note": ["by hand"]}))
    handle = place.state().handle
    [*old, _] = [one.snapshot_id for one in handle.metadata.snapshots]
    handle.maintenance.expire_snapshots().by_ids(old).commit()
    await place.fill([b"three"])
    assert await place.run_once() == {0: 3}
    found = [(row["value"], row["note"]) for row in place.rows().to_pylist()]
    assert sorted(found, key=str) == [
        (None, "by hand"), (b"one", None), (b"three", None), (b"two", None),
    ]  # fmt: skip


@pytest.mark.long
async def test_case_51_a_column_that_others_renamed_pauses_the_table(place: Place) -> None:
    """Fault: files are read by name, so its values were null, and a merge lost them for good."""
    keys = {"value_format": "json", "value_schema": "a bigint, b struct<c: string>"}
    await place.create(**{f"ottla_table_{key}": value for key, value in keys.items()})
    await place.fill([b'{"a": 1, "b": {"c": "x"}}'])
    await place.run_once()
    for old, new in (("a", "n"), ("b.c", "d")):
        handle: Any = place.state().handle
        handle.update_schema().rename_column(old, new).commit()
    await place.fill([b'{"a": 2}'])
    with pytest.raises(TablePaused, match=r"ColumnsChanged: .*\(a to n, b.c to b.d\)"):
        await place.run_once()
    with pytest.raises(TablePaused, match=r"a to n"):
        open_snapshot(place.state().metadata_location)
    result = await asyncio.to_thread(place.command, "erase", place.topic, "--where", "n = 1")
    assert result.exit_code == 1
    assert "rename them back" in result.output
    for new, old in (("n", "a"), ("b.d", "c")):
        handle = place.state().handle
        handle.update_schema().rename_column(new, old).commit()
    assert await place.run_once() == {0: 2}
    assert place.rows().column("a").to_pylist() == [1, 2]
    assert place.rows().column("b").to_pylist() == [{"c": "x"}, None]


@pytest.mark.long
@pytest.mark.parametrize("how", ["--replay", "--accept"])
async def test_case_52_a_rollback_pauses_until_somebody_decides(place: Place, how: str) -> None:
    """Dead letters are in a table of their own, which nobody rolled back."""
    await place.create(
        ottla_table_value_format="json", ottla_table_value_schema="n bigint",
        ottla_table_keep_value="true",
    )  # fmt: skip
    await place.fill([b'{"n":0}', b"poison 1"])
    await place.run_once()
    older = place.state().snapshot
    await place.fill([b'{"n":2}', b"poison 3", b'{"n":4}'])
    await place.run_once()
    handle: Any = place.state().handle
    handle.manage_snapshots().rollback_to_snapshot(older).commit()
    await place.fill([b'{"n":5}', b"poison 6"])
    for _ in range(2):
        with pytest.raises(TablePaused, match="RolledBack"):
            await place.run_once()
        assert place.rows().column("_offset").to_pylist() == [0]
        assert place.rows(f"{place.table}__dlq").column("_offset").to_pylist() == [1, 3]
    assert open_snapshot(place.state().metadata_location).position == {0: 2}
    told = await asyncio.to_thread(place.command, "resume", place.topic, how)
    assert (told.exit_code, "goes on at" in told.output) == (0, True), told.output
    for _ in range(2):
        assert await place.run_once() == {0: 7}
    taken = [0, 2, 4, 5] if how == "--replay" else [0, 5]
    rows = place.rows()
    assert rows.column("_offset").to_pylist() == taken
    assert rows.column("n").to_pylist() == taken
    letters = place.rows(f"{place.table}__dlq")
    assert letters.column("_offset").to_pylist() == [1, 3, 6]
    if how == "--replay":
        found = await asyncio.to_thread(place.command, "verify", place.topic)
        assert found.exit_code == 0, found.output


def delete_by_equality(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the row of offset 0 as engines do that merge when they read; pyiceberg cannot."""
    handle: Any = place.state().handle
    path = place.directory / "w/deletes.parquet"
    offset = handle.schema().find_field("_offset").field_id
    field = pa.field("_offset", pa.int64(), metadata={"PARQUET:field_id": str(offset)})
    pq.write_table(pa.table([pa.array([0])], schema=pa.schema([field])), path)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=[offset],
        spec_id=handle.metadata.default_spec_id,
    )
    with monkeypatch.context() as patched:
        patched.setattr(ManifestWriterV2, "content", lambda _: ManifestContent.DELETES)
        with handle.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(file)


@pytest.mark.long
async def test_case_53_delete_files_of_others_pause_the_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.create(ottla_table_partition="none")
    await place.fill([b"one", b"two"])
    await place.run_once()
    delete_by_equality(place, monkeypatch)
    await place.fill([b"three"])
    with pytest.raises(TablePaused, match="ForeignDeletes"):
        await place.run_once()
    assert place.state().next == {0: 2}
    with pytest.raises(TablePaused, match="ForeignDeletes"):
        open_snapshot(place.state().metadata_location)


class Killed(BaseException):
    """The worker dies here."""


class MortalTask(TableTask):
    """Dies before or after one effect, or hears nothing of what it did."""

    fate: tuple[type[rounds.Effect], str]

    async def do(self, effect: rounds.Effect) -> rounds.Event:
        kind, when = self.fate
        if not isinstance(effect, kind):
            return await super().do(effect)
        if when == "before":
            raise Killed
        await super().do(effect)
        if when == "after":
            raise Killed
        self.fate = (rounds.Wait, "")
        raise TimeoutError("the answer was lost")


EFFECTS = [
    rounds.Load, rounds.Create, rounds.Take, rounds.Upload, rounds.CommitRows, rounds.Publish,
    rounds.Mirror,
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect", EFFECTS)
async def test_case_47_a_worker_killed_at_any_step_leaves_no_gap_and_no_duplicate(
    place: Place, effect: type[rounds.Effect], when: str
) -> None:
    await place.create(2)
    await place.fill([b"a", b"b"], 0)
    await place.fill([b"c"], 1)
    settings = topic_settings(place.topic, {"ottla.table.enable": "true"})
    assert settings is not None
    async with place.worker() as worker:
        task = MortalTask(worker, settings)
        task.fate = (effect, when)
        with pytest.raises(Killed):
            await task.run_once()
    assert await place.run_once() == {0: 2, 1: 1}
    assert place.values() == [b"a", b"b", b"c"]
    pointer = (await read_pointers(place.bootstrap))[place.topic]
    assert pointer.metadata_location == place.state().metadata_location


async def test_case_49_a_commit_whose_answer_is_lost_is_not_done_again(place: Place) -> None:
    await place.create()
    await place.fill([b"a", b"b"])
    settings = topic_settings(place.topic, {"ottla.table.enable": "true"})
    assert settings is not None
    async with place.worker() as worker:
        task = MortalTask(worker, settings)
        task.fate = (rounds.CommitRows, "lost")
        assert await task.run_once() == {0: 2}
    state = place.state()
    assert (place.values(), len(state.commits)) == ([b"a", b"b"], 1)
    tables = place.tables()
    assert {one.url for one in tables.files(state)} == place.data_files()
    tables.close()


class Race:
    """Two workers have written the same rows before either commits them."""

    def __init__(self, winner: int | None) -> None:
        self.start = asyncio.Barrier(2)
        self.winner = winner  # commits first; None: both at once
        self.is_decided = asyncio.Event()
        self.outcomes: list[str] = []


class RacingTask(TableTask):
    """Meets the other worker at the commit."""

    race: Race
    number: int

    async def do(self, effect: rounds.Effect) -> rounds.Event:
        if not isinstance(effect, rounds.CommitRows):
            return await super().do(effect)
        race = self.race
        await race.start.wait()
        if race.winner not in (None, self.number):
            await race.is_decided.wait()
        try:
            event = await super().do(effect)
        except CommitRefused:
            race.outcomes.append("refused")
            raise
        else:
            race.outcomes.append("committed")
            return event
        finally:
            race.is_decided.set()


@pytest.mark.long
async def test_case_48_two_workers_on_one_table_take_each_record_once(place: Place) -> None:
    await place.create(2)
    await place.run_once()
    settings = topic_settings(place.topic, {"ottla.table.enable": "true"})
    assert settings is not None
    turns = 200 if SOAK else 4
    async with place.worker() as one, place.worker() as other:
        for turn in range(turns):
            for number in (0, 1):
                await place.fill([b"%d" % turn] * 5, number)
            race = Race((0, None, 1, None)[turn % 4])
            tasks = []
            for number, worker in enumerate((one, other)):
                task = RacingTask(worker, settings)
                task.race, task.number = race, number
                tasks.append(task.run_once())
            end = 5 * (turn + 1)
            assert await asyncio.gather(*tasks) == [{0: end, 1: end}] * 2
            assert sorted(race.outcomes) == ["committed", "refused"]
        commits = [worker.metrics.commits[place.topic] for worker in (one, other)]
    assert sum(commits) == turns
    assert min(commits) >= turns // 4
    rows = place.rows().to_pylist()
    assert [(row["_partition"], row["_offset"], row["value"]) for row in rows] == [
        (number, at, b"%d" % (at // 5)) for number in (0, 1) for at in range(5 * turns)
    ]
    tables = place.tables()
    assert {file.url for file in tables.files(place.state())} == place.data_files()
    tables.close()


@pytest.mark.long
async def test_case_44_a_compacted_topic_has_gaps(tmp_path: Path) -> None:
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "log.cleaner.backoff.ms=3600000"]
    node = await Node.start(load_broker_config(sets=sets), tmp_path / "data", ephemeral=True)
    try:
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        await create_topic(node.cluster, "t", configs={**configs, "ottla.table.enable": "true"})
        hosted = await node.partitions.open("t", 0, write=True)
        for value in (b"1", b"2", b"3", b"4"):
            hosted.log.append(batch_of(value), leader_epoch=hosted.leader_epoch, now_ms=0)
            hosted.log.roll(0)
        hosted.advance(hosted.log.flush())
        cleaner = Cleaner(node.data, node.partitions, node.workers, ManualClock(1_000_000))
        while await cleaner.compact_dirtiest():
            pass
        place = Place("{}:{}".format(*next(iter(node.addresses.values()))), tmp_path, "t")
        assert await place.run_once() == {0: 4}
        assert place.rows().column("_offset").to_pylist() == [3]
    finally:
        await node.stop()


@pytest.mark.long
async def test_case_41_other_engines_read_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb
    import fastavro
    import polars

    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else it warns of a missing plugin
    await place.create(2)
    for number in (0, 1):
        await place.fill([b"x" * i for i in range(50)], number, timestamp_ms=number * DAY)
    await place.run_once()
    state = place.state()
    tables = place.tables()
    files = [one.url.removeprefix("file://") for one in tables.files(state)]
    tables.close()
    rows = place.rows()  # by pyiceberg
    assert (rows.num_rows, sum(rows.column("_offset").to_pylist())) == (100, 2450)
    assert sum(len(one) for one in rows.column("value").to_pylist()) == 2450
    offset, time = polars.col("_offset"), polars.col("_timestamp")
    size = polars.col("value").bin.size().sum()
    scanned = polars.scan_iceberg(state.metadata_location)
    frame = scanned.select(polars.len(), offset.sum(), size, time.n_unique()).collect()
    assert frame.row(0) == (100, 2450, 2450, 2)
    found = duckdb.execute(
        f"select count(*), sum(_offset), sum(octet_length(value)) from read_parquet({files})"
    ).fetchone()
    assert found == (100, 2450, 2450)

    def avro(location: str) -> list[Any]:
        with Path(location.removeprefix("file://")).open("rb") as file:
            return list(fastavro.reader(file))

    # Manifests without pyiceberg: each file's day is there, not in its path alone.
    handle: Any = state.handle
    manifests = avro(handle.current_snapshot().manifest_list)
    entries = [entry for one in manifests for entry in avro(one["manifest_path"])]
    named = {entry["data_file"]["file_path"]: entry["data_file"] for entry in entries}
    assert set(named) == {f"file://{one}" for one in files}
    assert sorted(
        (str(one["partition"]["_day"]), one["record_count"]) for one in named.values()
    ) == [("1970-01-01", 50), ("1970-01-02", 50)]
