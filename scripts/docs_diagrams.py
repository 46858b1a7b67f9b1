"""The diagrams of the documentation, as SVG: they need no script, and so no network, to be seen.

    python scripts/docs_diagrams.py     writes docs/images/*.svg

Boxes and arrows are placed by hand; a sequence diagram is laid out from its messages. A test
compares the files with what this script would write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
LINE: Final = 17  # from one line of text to the next

Kind = Literal["box", "strong", "end", "frame"]
Point = tuple[int, int]

# fill, edge, corner
STYLES: Final[dict[Kind, tuple[str, str, int]]] = {
    "box": ("#f3effa", "#7e57c2", 6),
    "strong": ("#d9caf3", "#5e35b1", 6),
    "end": ("#f5f5f5", "#9e9e9e", 16),
    "frame": ("#fffdf5", "#d0b060", 10),
}
HEAD: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img" font-family="Helvetica, Arial, sans-serif" \
font-size="13" fill="#222">
<title>{title}</title>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" \
orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="#555"/></marker></defs>
<rect width="{width}" height="{height}" fill="#fff"/>
"""


@dataclass
class Drawing:
    """Shapes in the order in which they are drawn."""

    title: str
    width: int
    height: int
    shapes: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, height: int, text: str, kind: Kind = "box") -> None:
        """A rectangle with its lines of text in the middle; a frame has them at its top."""
        fill, edge, corner = STYLES[kind]
        self.shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{corner}" '
            f'fill="{fill}" stroke="{edge}"/>'
        )
        rows = text.count("\n") + 1
        middle = y + 14 if kind == "frame" else y + height // 2 - (rows - 1) * LINE // 2
        self._write(x + width // 2, middle, text, 'text-anchor="middle"')

    def text(self, x: int, y: int, text: str, anchor: str = "middle") -> None:
        """Lines of text around x, the first at the height y, over what is drawn below."""
        halo = 'stroke="#fff" stroke-width="4" paint-order="stroke"'
        self._write(x, y, text, f'text-anchor="{anchor}" {halo}')

    def _write(self, x: int, y: int, text: str, style: str) -> None:
        for row, line in enumerate(text.split("\n")):
            self.shapes.append(
                f'<text x="{x}" y="{y + 4 + row * LINE}" {style}>{escape(line)}</text>'
            )

    def arrow(self, *points: Point, dashed: bool = False) -> None:
        """A line through the points, its head at the last."""
        path = " ".join(f"{x},{y}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.shapes.append(
            f'<polyline points="{path}" fill="none" stroke="#555" stroke-width="1.3"{dashes} '
            'marker-end="url(#head)"/>'
        )

    def svg(self) -> str:
        head = HEAD.format(width=self.width, height=self.height, title=escape(self.title))
        return head + "\n".join(self.shapes) + "\n</svg>\n"


@dataclass(frozen=True)
class Message:
    """One line of a sequence diagram; `back` is an answer, drawn with dashes."""

    source: str
    target: str
    text: str
    back: bool = False


def sequence(title: str, names: Sequence[str], messages: Sequence[Message]) -> Drawing:
    """Columns for those who talk, rows for what they say."""
    apart, row, top = 720 // len(names), 36, 62
    bottom = top + row * len(messages)
    drawing = Drawing(title, 720, bottom + 8)
    column = {name: apart // 2 + index * apart for index, name in enumerate(names)}
    for name, x in column.items():
        drawing.shapes.append(f'<path d="M{x} 40V{bottom}" stroke="#bbb"/>')
        drawing.box(x - 62, 8, 124, 32, name, "strong")
    for index, message in enumerate(messages):
        y = top + row * index + 12
        start, end = column[message.source], column[message.target]
        if start == end:
            drawing.arrow((start, y - 8), (start + 28, y - 8), (start + 28, y + 8), (start, y + 8))
            drawing.text(start + 36, y, message.text, "start")
        else:
            drawing.text((start + end) // 2, y - 10, message.text)
            drawing.arrow((start, y), (end, y), dashed=message.back)
    return drawing


# -- the diagrams ----------------------------------------------------------------------------------


def four_ways() -> Drawing:
    drawing = Drawing("Producers write to the log; it is read four ways", 720, 238)
    drawing.box(10, 70, 130, 50, "producers")
    drawing.box(215, 60, 150, 70, "the log", "strong")
    drawing.box(215, 178, 150, 50, "an archive:\nobject storage")
    readers = ("a stream:\nconsumer groups", "a queue:\nshare groups", "a table:\nArrow, Spark")
    drawing.arrow((140, 95), (215, 95))
    drawing.arrow((290, 130), (290, 178))
    drawing.text(300, 154, "sealed segments", "start")
    for index, text in enumerate(readers):
        y = 10 + index * 84
        drawing.box(540, y, 170, 50, text)
        drawing.arrow((365, 95), (540, y + 18))
        drawing.arrow((365, 203), (540, y + 34), dashed=True)
    return drawing


def log() -> Drawing:
    drawing = Drawing("A partition is a row of segments", 720, 236)
    drawing.box(10, 10, 560, 116, "partition 0 of orders", "frame")
    segments = ("segment 0\noffsets 0 to 9,999\nsealed", "segment 10,000\nsealed")
    for index, text in enumerate(segments):
        drawing.box(26 + index * 182, 40, 162, 72, text)
        drawing.arrow((188 + index * 182, 76), (208 + index * 182, 76))
    drawing.box(390, 40, 162, 72, "segment 20,000\nactive", "strong")
    drawing.box(620, 52, 90, 48, "producer")
    drawing.arrow((620, 76), (552, 76))
    drawing.text(596, 66, "batch")
    drawing.box(26, 188, 120, 38, "deleted", "end")
    drawing.box(236, 188, 220, 38, "the latest record of each key", "end")
    drawing.arrow((80, 112), (80, 188))
    drawing.text(88, 152, "retention", "start")
    drawing.arrow((150, 112), (270, 188))
    drawing.text(226, 152, "or compaction", "start")
    return drawing


def acknowledged() -> Drawing:
    a, b, the_log, disk = "producer A", "producer B", "log", "disk"
    return sequence(
        "Two batches, one sync, two answers",
        (a, b, the_log, disk),
        (
            Message(a, the_log, "batch, acks=all"),
            Message(b, the_log, "batch, acks=all"),
            Message(the_log, disk, "one durable write"),
            Message(disk, the_log, "synced", back=True),
            Message(the_log, the_log, "the high watermark moves"),
            Message(the_log, a, "offset 20,000", back=True),
            Message(the_log, b, "offset 20,500", back=True),
        ),
    )


def share_states() -> Drawing:
    drawing = Drawing("The states of a record in a share group", 720, 268)
    drawing.box(20, 70, 120, 48, "Available")
    drawing.box(350, 70, 120, 48, "Acquired", "strong")
    drawing.box(590, 70, 120, 48, "Acknowledged", "end")
    drawing.box(350, 210, 120, 48, "Archived", "end")
    drawing.arrow((80, 30), (80, 70))
    drawing.text(80, 18, "appended to the log")
    drawing.arrow((140, 82), (350, 82))
    drawing.text(245, 56, "delivered:\ncount + 1, a lock starts")
    drawing.arrow((350, 106), (140, 106))
    drawing.text(245, 120, "released, the lock ends,\nor the member goes")
    drawing.arrow((470, 94), (590, 94))
    drawing.text(530, 82, "accept")
    drawing.arrow((390, 70), (390, 40), (430, 40), (430, 70))
    drawing.text(410, 28, "renew")
    drawing.arrow((410, 118), (410, 210))
    drawing.text(420, 150, "reject, or not accepted\nat the delivery limit", "start")
    drawing.arrow((80, 118), (80, 234), (350, 234))
    drawing.text(215, 222, "deleted by retention")
    drawing.text(480, 226, "with a dead letter, if the\ngroup has a topic for them", "start")
    return drawing


def tier_states() -> Drawing:
    drawing = Drawing("The states of a segment in object storage", 720, 252)
    drawing.box(20, 66, 220, 48, "COPY_SEGMENT_STARTED")
    drawing.box(490, 66, 220, 48, "COPY_SEGMENT_FINISHED", "strong")
    drawing.box(490, 194, 220, 48, "DELETE_SEGMENT_STARTED")
    drawing.box(20, 194, 220, 48, "DELETE_SEGMENT_FINISHED", "end")
    drawing.arrow((130, 32), (130, 66))
    drawing.text(130, 18, "sealed and below the high watermark")
    drawing.arrow((240, 90), (490, 90))
    drawing.text(365, 78, ".log, then .meta are stored")
    drawing.text(600, 52, "can be read")
    drawing.arrow((600, 114), (600, 194))
    drawing.text(610, 154, "remote retention", "start")
    drawing.arrow((200, 114), (490, 206))
    drawing.text(372, 148, "failed, or given up", "start")
    drawing.arrow((490, 226), (240, 226))
    drawing.text(365, 214, "both objects are gone")
    return drawing


def pipeline() -> Drawing:
    driver, checkpoint, executors, broker = "Spark driver", "checkpoint", "executors", "broker"
    return sequence(
        "One micro-batch",
        (checkpoint, driver, executors, broker),
        (
            Message(driver, broker, "where does the log end?"),
            Message(driver, checkpoint, "plan: 500 to 900"),
            Message(driver, executors, "ranges, as tasks"),
            Message(executors, broker, "fetch the ranges"),
            Message(broker, executors, "batches, to Arrow", back=True),
            Message(executors, executors, "your code, the sink"),
            Message(executors, driver, "done", back=True),
            Message(driver, checkpoint, "committed"),
            Message(driver, broker, "a group's offsets, if wanted"),
        ),
    )


DIAGRAMS: Final[dict[str, Callable[[], Drawing]]] = {
    "four-ways": four_ways,
    "log": log,
    "acknowledged": acknowledged,
    "share-states": share_states,
    "tier-states": tier_states,
    "pipeline": pipeline,
}


def main() -> None:
    for name, draw in DIAGRAMS.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg())


if __name__ == "__main__":
    main()
