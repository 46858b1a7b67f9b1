"""The play: broker, crew and orders, until all is done; then the checks, then the lights go out.

It ends by itself: when everything has got where it must, when a child fails, when its time is up.
Whatever ends it, no process is left; files stay if they are to be kept or something went wrong.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ottla
from ottla.clock import SYSTEM
from ottla.demo.checks import check, expect, failures, shown_at_the_end
from ottla.demo.console import ask
from ottla.demo.crew import Child, Crew
from ottla.demo.evidence import gather
from ottla.demo.figures import follow_sales, follow_table, look
from ottla.demo.ledger import create_ledger
from ottla.demo.nodes import KILLED, Nodes
from ottla.demo.orders import MEAN_GAP_MS, window_of
from ottla.demo.screen import LiveScreen, PlainScreen, Scene, save_picture
from ottla.demo.shops import create_certificates, create_user, knock, produce
from ottla.demo.stage import (
    DEAD_LETTER_SETTINGS,
    DEAD_LETTERS,
    NODES,
    ORDERS,
    ORDERS_SETTINGS,
    PARTITIONS,
    SALES,
    SALES_GROUP,
    SALES_GROUP_SETTINGS,
    WAREHOUSE_GROUP,
    WAREHOUSE_SETTINGS,
    Stage,
)
from ottla.demo.table import TABLE_SETTINGS
from ottla.demo.workers import create_warehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.demo.checks import Check
    from ottla.demo.screen import Screen

# Of the orders: when a node is killed.
KILL_AFTER: Final = 0.4
LOOK_EVERY_SECONDS: Final = 0.25
# The demo takes at most two minutes with its checks; after that it stops waiting.
LIMIT_SECONDS: Final = 100.0
# After Ctrl-C do not wait for a clean end of the JVM.
HURRY_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run. `plain`: no live screen, lines on stderr. `console`: tell where it is."""

    orders: int
    seed: int
    limit: float = LIMIT_SECONDS
    plain: bool = False
    keep: bool = False
    picture: Path | None = None
    console: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """The results and the duration."""

    orders: int
    seconds: int
    checks: list[Check]
    bootstrap: str
    directory: str
    console: str

    @property
    def failures(self) -> list[str]:
        return failures(self.checks)


def run_demo(options: Options, report: Callable[[Summary], None]) -> Summary:
    """Run it all; `report` is called with the summary, before whatever is kept is waited for.

    `ChildFailed` if a part breaks down, KeyboardInterrupt or CancelledError if it is stopped by
    SIGINT or SIGTERM.
    """
    with _directory() as (directory, keep_files), _log_to(directory / "logs" / "demo.log"):
        summary = asyncio.run(_run(options, directory, report))
        if options.keep or summary.failures:
            keep_files()
    return summary


@contextmanager
def _directory() -> Iterator[tuple[Path, Callable[[], None]]]:
    """A new directory, deleted at the end unless it is kept."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    wanted: list[bool] = []
    try:
        yield directory, lambda: wanted.append(True)
    except Exception:
        wanted.append(True)  # the logs of what went wrong
        raise
    finally:
        if not wanted:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _log_to(file: Path) -> Iterator[None]:
    """Send log lines of this process to a file instead of the screen."""
    file.parent.mkdir()
    handler = logging.FileHandler(file)
    logging.getLogger("ottla").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("ottla").removeHandler(handler)
        handler.close()


async def _run(options: Options, directory: Path, report: Callable[[Summary], None]) -> Summary:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    # The shops' clocks end about now.
    begin_ms = window_of(SYSTEM.wall_ms() - options.orders * MEAN_GAP_MS)
    empty = Stage(str(directory), options.orders, options.seed, begin_ms)
    create_certificates(empty)
    async with Nodes(empty) as nodes:
        stage = nodes.stage()
        expected = expect(stage.make_orders())
        where = stage.console if options.console else stage.bootstrap
        scene = Scene(f"ottla demo: {options.orders:,} orders, {where}", expected)
        await _set_up(stage)
        checks = await _Play(stage, scene, _screen(options), options, nodes).run()
        if options.picture is not None:
            save_picture(options.picture, scene, checks)
        summary = Summary(
            options.orders,
            round(scene.seconds),
            checks,
            stage.bootstrap,
            stage.directory,
            stage.console,
        )
        report(summary)
        if options.keep:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
    return summary


def _screen(options: Options) -> Screen:
    if options.plain:
        return PlainScreen(sys.stderr)
    return LiveScreen() if sys.stdout.isatty() else PlainScreen(sys.stdout)


async def _set_up(stage: Stage) -> None:
    create_warehouse(stage)
    create_ledger(stage)
    async with ottla.Admin(stage.bootstrap) as admin:
        orders = {**ORDERS_SETTINGS, **TABLE_SETTINGS}
        await admin.create_topic(ORDERS, partitions=PARTITIONS, configs=orders)
        await admin.create_topic(DEAD_LETTERS, partitions=1, configs=DEAD_LETTER_SETTINGS)
        await admin.create_topic(SALES, partitions=1)
        await admin.alter_configs("group", WAREHOUSE_GROUP, WAREHOUSE_SETTINGS)
        await admin.alter_configs("group", SALES_GROUP, SALES_GROUP_SETTINGS)
        await create_user(admin)


class _Play:
    """From the first order to the last check."""

    def __init__(
        self, stage: Stage, scene: Scene, screen: Screen, options: Options, nodes: Nodes
    ) -> None:
        self._stage = stage
        self._options = options
        self._nodes = nodes
        self._killed: int | None = None
        self._scene = scene
        self._screen = screen
        self._begun = time.monotonic()
        self._crew = Crew(self._crashed)

    async def run(self) -> list[Check]:
        try:
            self._start_crew()
            await self._until_done()
            is_done = self._scene.figures.is_complete(self._scene.expected)
            self._say(f"{'all is done' if is_done else 'time is up'}: now everything is checked")
            self._show()
            checks = await self._check(await self._crew.end())
            self._show()
            return checks
        except asyncio.CancelledError:
            await self._crew.end(HURRY_SECONDS)
            raise
        finally:
            self._crew.kill()
            self._screen.close()

    def _start_crew(self) -> None:
        """Four workers of which two crash, a ledger that crashes twice, and Spark."""
        few = max(self._stage.orders // 40, 1)
        # Spark takes longest to start.
        self._crew.add(Child(self._stage, "pipeline", "pipeline", ()))
        for name, crashes in {
            "worker-1": (),
            "worker-2": (few,),
            "worker-3": (2 * few, few),
            "worker-4": (),
        }.items():
            self._crew.add(Child(self._stage, "worker", name, crashes))
        self._crew.add(Child(self._stage, "ledger", "ledger", (4 * few, 8 * few)))
        self._say(
            f"{NODES} nodes serve; {len(self._crew.children)} processes start: workers, a ledger, a"
            " Spark pipeline"
        )
        if self._options.console:
            self._say(f"look at it in a browser: {self._stage.console}")

    def _crashed(self, child: Child) -> None:
        self._scene.figures.crashes = self._crew.crashes()
        meant = {
            "worker": "after shipping orders, before acknowledging them: they are delivered again",
            "ledger": "in the middle of a transaction: it continues at the stored offsets",
        }
        self._say(f"{child.name} crashed on purpose, {meant[child.role]}")

    async def _until_done(self) -> None:
        """Wait for all tasks; the first failure fails the demo."""
        try:
            async with asyncio.timeout(self._options.limit), asyncio.TaskGroup() as group:
                endless = [
                    group.create_task(self._crew.watch()),
                    group.create_task(follow_sales(self._stage, self._scene.figures)),
                    group.create_task(follow_table(self._stage, self._scene.figures)),
                ]
                group.create_task(self._produce())
                await self._watch()
                for task in endless:
                    task.cancel()
        except TimeoutError:
            return
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _produce(self) -> None:
        await produce(self._stage)
        self._say("the last order is acknowledged")

    async def _watch(self) -> None:
        async with ottla.Admin(self._stage.bootstrap) as admin:
            while True:
                self._nodes.look()
                await look(self._stage, admin, self._scene.figures)
                self._kill_a_node()
                self._show()
                if self._scene.figures.is_complete(self._scene.expected):
                    return
                await asyncio.sleep(LOOK_EVERY_SECONDS)

    def _kill_a_node(self) -> None:
        """Once, in the middle of the orders, without a word to anybody."""
        is_time = self._scene.figures.produced >= KILL_AFTER * self._stage.orders
        if is_time and self._killed is None:
            self._killed = self._nodes.kill_one()
            self._scene.figures.kills += 1
            self._say(f"node {KILLED} is killed (SIGKILL): the supervisor starts it again")

    async def _check(self, still_running: list[str]) -> list[Check]:
        found = await gather(self._stage)
        found.refused = await knock(self._stage)
        found.console = await ask(self._stage, shown_at_the_end(self._scene.expected))
        found.killed = self._killed
        found.returned = self._nodes.process_of(KILLED)
        found.crashes = self._crew.crashes()
        found.still_running = still_running
        return check(self._scene.expected, found)

    def _say(self, text: str) -> None:
        self._scene.events.append((time.monotonic() - self._begun, text))

    def _show(self) -> None:
        self._scene.seconds = time.monotonic() - self._begun
        self._screen.show(self._scene)
