"""A `.ss` file as a source: each range is a number of whole frames of one file.

Offsets are places in the file, `{"file name": {"0": 128}}`. A large range is cut at beacons, where
a reader can start. A torn end and an end mark are not read.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ottla.client.cluster.view import Topic, TopicPartition
from ottla.spark.cluster import is_selected
from ottla.spark.offsets import batch_start, from_json
from ottla.spark.stores.streams import StreamsBackend, to_arrow
from ottla.streams.ss.decoder import Decoder
from ottla.streams.ss.format import HEADER_SIZE
from ottla.streams.ss.reader import SsReader
from ottla.streams.ss.survey import CHUNK, Survey, find_end
from ottla.streams.types import INTERNAL
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ottla.spark.backend import Offset, Task
    from ottla.spark.offsets import Offsets
    from ottla.spark.options import SourceOptions

TASK_BYTES: Final = 64 * 1024 * 1024
PAGE: Final = 8192  # messages in an Arrow batch


class FrameRange(NamedTuple):
    """Bytes from one frame's start up to another's."""

    first: int
    end: int


class SsBackend(StreamsBackend):
    """One file. Streams of it that the query does not name are left out."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._place = TopicPartition(Path(options.store.path).name, 0)

    def ends(self) -> Offsets:
        with closing(SsReader(self._options.store.path)) as reader:
            return {self._place: find_end(reader.survey()).offset}

    def limited(self, begin: Offsets, latest: Offsets, rows: int) -> Offsets:
        end = latest[self._place]
        with closing(SsReader(self._options.store.path)) as reader:
            interval = reader.header.interval
            survey = Survey(reader.pread, end, interval)
            # Messages of other streams count too, because they are read as well.
            decoder = Decoder(interval, _begin(begin, self._place), verify=False)
            for number, (offset, _) in enumerate(survey.scan(decoder)):
                if number == rows:
                    return {self._place: offset}
        return latest

    def plan(self, start: Offset, end: Offset) -> Sequence[Task]:
        first = _begin(batch_start(start, end), self._place)
        last = from_json(end)[self._place]
        with closing(SsReader(self._options.store.path)) as reader:
            survey = reader.survey()
            if survey.size < last:
                self.lost(f"{self._options.store.path} ends at {survey.size}, before {last}")
                last = max(first, find_end(survey).offset)
            cuts = [first]
            step = max(1, TASK_BYTES // survey.interval)
            for beacon in range(first // survey.interval + step, last // survey.interval, step):
                found = next(survey.scan(survey.decoder(beacon, verify=False)), None)
                if found is not None and cuts[-1] < found[0] < last:
                    cuts.append(found[0])
        ends = [*cuts[1:], last]
        return [FrameRange(*one) for one in zip(cuts, ends, strict=True) if one[0] < one[1]]

    def read(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = cast("FrameRange", task)
        selected: dict[str, bool] = {INTERNAL: False}
        with closing(SsReader(self._options.store.path)) as reader:
            decoder = Decoder(reader.header.interval, wanted.first)
            while decoder.fed < wanted.end:
                data = reader.pread(decoder.fed, min(CHUNK, wanted.end - decoder.fed))
                if not data:
                    self.lost(
                        f"{self._options.store.path} ends at {decoder.fed}, before {wanted.end}"
                    )
                    return
                decoder.feed(data)
                while messages := decoder.take(PAGE):
                    for name in {one.stream for one in messages} - selected.keys():
                        topic = Topic(name, ZERO_UUID, is_internal=False, partitions=())
                        selected[name] = is_selected(topic, self._options.selection)
                    chosen = [one for one in messages if selected[one.stream]]
                    if chosen:
                        yield to_arrow(chosen, columns)


def _begin(offsets: Offsets, place: TopicPartition) -> int:
    return max(offsets.get(place, 0), HEADER_SIZE)
