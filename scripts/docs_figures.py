"""The figures of README.md, taken from the results of the benchmarks.

    python scripts/docs_figures.py      `python -m benchmarks` does it, too

Between two marks README has a table of some of the rows of benchmarks/RESULTS.md. A row that is not
among the results, for its script was not run or failed, is left out. A test compares the two.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
RESULTS: Final = ROOT / "benchmarks" / "RESULTS.md"
BEGIN: Final = "<!-- figures: written by scripts/docs_figures.py -->\n"
END: Final = "<!-- end of figures -->\n"
HEAD: Final = "| what | Ottla | peer | ratio | range | script |\n|---|---|---|---|---|---|\n"


class Figure(NamedTuple):
    """A row of the results, found by how it begins, and how README calls it."""

    script: str
    row: str
    what: str
    peer: str


FIGURES: Final = (
    Figure("broker", "process to ready", "a broker process, to ready", "Apache Kafka"),
    Figure("broker", "idle resident memory", "idle memory", "Apache Kafka"),
    Figure(
        "broker",
        "produce 1 KiB, acks=all, page cache",
        "produce 1 KiB records, `acks=all`, as durable as Kafka",
        "Apache Kafka",
    ),
    Figure(
        "broker",
        "produce 1 KiB, acks=all, synced",
        "the same, synced to disk before the answer",
        "Apache Kafka, not synced",
    ),
    Figure("broker", "consume 1 KiB", "consume 1 KiB records", "Apache Kafka"),
    Figure(
        "broker",
        "Java producer, 500 bytes, acks=all, synced",
        "Kafka's own producer, synced to disk before the answer",
        "Apache Kafka, not synced",
    ),
    Figure("broker", "Java consumer", "Kafka's own consumer", "Apache Kafka"),
    Figure(
        "broker",
        "EmbeddedBroker: start and first ack",
        "broker in a test: start and first record",
        "librdkafka's mock",
    ),
    Figure("share", "share consumption 1 KiB, 1 ", "share group, one member", "Apache Kafka"),
    Figure("share", "share consumption 1 KiB, 8 ", "share group, eight members", "Apache Kafka"),
    Figure("client", "Reader to Arrow", "`Reader`, records to Arrow", "confluent-kafka"),
    Figure("client", "ShareConsumer.poll_arrow", "`ShareConsumer.poll_arrow`", "confluent-kafka"),
    Figure("client", "send_arrow, 100 B, with keys", "`Producer.send_arrow`", "confluent-kafka"),
    Figure("client", "await send one by one", "`await send` one by one", "aiokafka"),
    Figure("wire", "decode 100-byte records", "decode to Arrow", "aiokafka's compiled reader"),
    Figure("wire", "encode from Arrow", "encode from Arrow", "aiokafka's compiled builder"),
    Figure("spark", "read, all columns", "Spark reads a topic", "Spark's `kafka` format"),
    Figure("spark", "streaming write", "Spark writes a topic", "Spark's `kafka` format"),
    Figure("spark", "AvailableNow", "Spark, 200 small partitions", "Spark's `kafka` format"),
    Figure(
        "spark", "micro-batch floor, peer stock", "Spark, smallest micro-batch", "a stock session"
    ),
    Figure("streams", "File write", "streams: write a `.ss` file", "SeaStreamer"),
    Figure("streams", "File read", "streams: read a `.ss` file", "SeaStreamer"),
    Figure("tier", "upload of a log", "upload to S3", "boto3"),
    Figure("tier", "cold sequential read", "read back from S3 by Fetch", "a local read"),
)


class Line(NamedTuple):
    """One row of RESULTS.md."""

    what: str
    ours: str
    peer: str
    ratio: str
    range: str
    target: str
    verdict: str


def found(results: str) -> dict[str, list[Line]]:
    """The rows of each script."""
    scripts: dict[str, list[Line]] = {}
    for section in results.split("\n## [")[1:]:
        cells = [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in section.splitlines()
            if re.match(r"\| (?!what |---)", line)
        ]
        scripts[section.partition("]")[0]] = [Line(*row) for row in cells]
    return scripts


def table(results: str) -> str:
    scripts = found(results)
    return HEAD + "".join(_line(figure, scripts.get(figure.script, [])) for figure in FIGURES)


def _line(figure: Figure, rows: list[Line]) -> str:
    row = next((each for each in rows if each.what.startswith(figure.row)), None)
    if row is None:
        return ""
    ours, peer = (_short(cell) for cell in (row.ours, row.peer))
    ratio = f"{row.ratio} its" if row.target.startswith("at most") else row.ratio
    missed = "" if row.verdict != "MISSED" else f", **{row.target} wanted**"
    link = f"[{figure.script}](benchmarks/{figure.script}.py)"
    cells = (figure.what, ours, f"{figure.peer}: {peer}", f"{ratio}{missed}", row.range, link)
    return f"| {' | '.join(cells)} |\n"


def _short(cell: str) -> str:
    """A measurement without what stands beside it in the results."""
    return re.split(r" \(|, ", cell)[0]


def with_figures(readme: str, results: str) -> str:
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{table(results)}{END}{after}"


def main() -> None:
    README.write_text(with_figures(README.read_text(), RESULTS.read_text()))


if __name__ == "__main__":
    main()
