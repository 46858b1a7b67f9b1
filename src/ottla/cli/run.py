"""`ottla run FILE`: run a pipeline until it is done, stopped or has failed.

Status 0 is done, 2 wrong use or definition, 3 a flow that failed for good, 4 something that is
missing (Java, a package, a broker, a topic), 130 and 143 a signal before flows had started. Errors
are sentences on stderr.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, TypeAlias
from uuid import uuid4

import typer

from ottla.cli.common import DEFAULT_BOOTSTRAP, complain, given_properties
from ottla.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ottla.cli.live import Display
    from ottla.spark.pipelines.board import Board
    from ottla.spark.pipelines.compiler import Compiler
    from ottla.spark.pipelines.early import EarlyJvm
    from ottla.spark.pipelines.load import Pipeline
    from ottla.spark.pipelines.model import Flow

DEFINITION: Final = 2
FLOW_FAILED: Final = 3
SURROUNDINGS: Final = 4
INTERRUPTED: Final = 130
TERMINATED: Final = 143

EXAMPLES = """
Examples:

  ottla run examples/orders.py --once              a broker of its own, its samples, one pass

  ottla run orders.py --bootstrap broker-1:9092    until Ctrl-C

  ottla run orders.py --env prod --for 10m         with what orders.prod.yaml says

  ottla run orders.py --master spark://host:7077 --json
"""

File: TypeAlias = Annotated[
    Path, typer.Argument(metavar="FILE", help="A pipeline: a .py or .yaml file.")
]
Env: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--env", metavar="NAME", help="Environment: settings of FILE.NAME.yaml override FILE.yaml."
    ),
]
State: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Directory for checkpoints, tables and the data of an embedded broker "
        "(default ./ottla-state/FILE).",
    ),
]
PipelineBootstrap: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT,...",
        envvar="OTTLA_BOOTSTRAP",
        help="Brokers to connect to first.",
    ),
]
Debug: TypeAlias = Annotated[
    bool, typer.Option("--debug", help="Show tracebacks and Spark's own log.")
]


def run(
    file: File,
    once: Annotated[
        bool, typer.Option("--once", help="Process the records that exist now, and end.")
    ] = False,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End after this time: 30s, 10m, 1h.")
    ] = None,
    flow: Annotated[
        list[str] | None,
        typer.Option("--flow", metavar="NAME", help="Run only this flow. May be repeated."),
    ] = None,
    backfill: Annotated[
        bool,
        typer.Option(
            "--backfill",
            help="New flows that read a table begin with one batch over its files.",
        ),
    ] = False,
    env: Env = None,
    bootstrap: PipelineBootstrap = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start a broker for this run.")
    ] = False,
    state: State = None,
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master (default local[*]).")
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://HOST."),
    ] = None,
    max_restarts: Annotated[
        int | None,
        typer.Option(
            "--max-restarts",
            min=0,
            help="Give up after this many failures in a row (3 with --once).",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Show Prometheus metrics on this port.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as one line of JSON.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Run a pipeline.

    Without --bootstrap, a file with samples gets a broker for this run. The first Ctrl-C or SIGTERM
    lets running batches finish, a second one ends at once.
    """
    if master is not None and remote is not None:
        raise typer.BadParameter("--master and --remote exclude each other")
    if once and for_ is not None:
        raise typer.BadParameter("--once and --for exclude each other")
    if embedded and bootstrap is not None:
        raise typer.BadParameter("--embedded and --bootstrap exclude each other")
    logging.basicConfig(level=logging.WARNING, format="ottla: %(message)s")
    # Of whatever pandas PySpark finds, which nothing here uses.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    with sentences(debug=debug), terminable(), ExitStack() as stack:
        from ottla.spark.pipelines.early import start_early

        early = start_early(file, env=env, master=master, remote=remote, debug=debug)
        if early is not None:
            stack.callback(early.close)
        from ottla.spark.pipelines.graph import chosen, refuse_backfill
        from ottla.spark.pipelines.model import seconds

        limit = None if for_ is None else seconds(for_, "--for")
        pipeline = loaded(file, env=env, state=state)
        named = bootstrap or pipeline.settings.bootstrap
        if embedded or (named is None and pipeline.definition.samples):
            if state is None:
                kept = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-run-"))
                pipeline = pipeline.kept_in(kept)
            named = _embedded(stack, pipeline, keeps=state is not None)
        flows = chosen(pipeline.definition, flow or [])
        if backfill:
            refuse_backfill(pipeline.definition, flows)
        from ottla.cli.live import Display

        display = stack.enter_context(Display(as_json=as_json))
        well = _Run(
            pipeline,
            flows,
            named or DEFAULT_BOOTSTRAP,
            display,
            reload=lambda: loaded(file, env=env, state=state)._replace(places=pipeline.places),
            debug=debug,
            once=once,
            backfill=backfill,
            early=early,
        ).run(master, remote, limit, max_restarts, metrics_port)
    if not well:
        raise typer.Exit(FLOW_FAILED)


def loaded(file: Path, *, env: str | None, state: str | None) -> Pipeline:
    """The pipeline of a file; connections are made as the file of --command-config says."""
    from dataclasses import replace

    from ottla.spark.pipelines.load import load

    pipeline = load(file, env=env, state=state)
    kafka = {**given_properties(), **pipeline.settings.kafka}
    return pipeline._replace(settings=replace(pipeline.settings, kafka=kafka))


class _Run:
    """One run: check the broker, start Spark, run the flows, stop Spark.

    A lost Spark session is replaced by a new one.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        flows: list[Flow],
        bootstrap: str,
        display: Display,
        *,
        reload: Callable[[], Pipeline],
        debug: bool,
        once: bool,
        backfill: bool,
        early: EarlyJvm | None,
    ) -> None:
        self._early = early
        self._pipeline = pipeline
        self._reload = reload
        self._is_first = True
        self._flows = flows
        self._bootstrap = bootstrap
        self._display = display
        self._debug = debug
        self._once = once
        self._backfill = backfill

    def run(
        self,
        master: str | None,
        remote: str | None,
        limit: float | None,
        max_restarts: int | None,
        metrics_port: int | None,
    ) -> bool:
        """Run all flows; returns whether all of them succeeded."""
        from ottla.spark.pipelines.board import Board
        from ottla.spark.pipelines.preflight import prepare
        from ottla.spark.pipelines.renewal import run_in_sessions
        from ottla.spark.pipelines.runner import Runner
        from ottla.spark.pipelines.typed_check import check_columns

        definition = self._pipeline.definition
        prepare(self._bootstrap, definition, self._flows, self._pipeline.settings.kafka)
        check_columns(self._pipeline, self._flows, self._bootstrap)
        names = [one.name for one in self._flows]
        board = Board(names, definition.hooks, self._display.event)
        if metrics_port is not None:
            from ottla.spark.pipelines.metrics import serve_metrics

            serve_metrics(board, metrics_port)
        runner = Runner(
            definition,
            self._flows,
            board,
            once=self._once,
            seconds=limit,
            max_restarts=max_restarts,
            on_failure=traceback.print_exception if self._debug else None,
        )

        def stop() -> None:
            runner.stop()
            self._display.say("stopping after the running batches; Ctrl-C again stops at once")

        with self._published(board), ExitStack() as handlers:
            begin = partial(self._session, board, handlers, stop, master, remote)
            return run_in_sessions(runner, begin, self._tell_loss)

    def _published(self, board: Board) -> AbstractContextManager[object]:
        """Tells `ottla.pipelines` what the run does, unless the settings say not to."""
        pipeline = self._pipeline
        if pipeline.settings.publish is False:
            return nullcontext()
        from ottla.spark.pipelines.announcing import Announcer, Facts
        from ottla.spark.pipelines.preflight import security_of
        from ottla.spark.pipelines.publishing import Publisher, find_outlet

        facts = Facts(
            pipeline.definition.name,
            uuid4().hex,
            socket.gethostname(),
            SYSTEM.wall_ms(),
            spark_version(),
            pipeline.places.checkpoints,
            pipeline.definition,
        )
        security = security_of(pipeline.settings.kafka)
        return Publisher(Announcer(facts), board, lambda: find_outlet(self._bootstrap, security))

    def _tell_loss(self, said: str, pause: float) -> None:
        self._display.say(
            f"Spark is gone ({said}); its log is {self._log}; a new session starts in {pause:.0f} s"
        )
        self._display.event({"event": "session", "state": "lost", "error": said, "pause": pause})

    @property
    def _log(self) -> Path:
        return self._pipeline.places.state / "spark.log"

    @contextmanager
    def _session(
        self,
        board: Board,
        handlers: ExitStack,
        stop: Callable[[], object],
        master: str | None,
        remote: str | None,
    ) -> Iterator[Compiler]:
        """One Spark session and the objects that belong to it."""
        from ottla.spark.pipelines.compiler import Compiler
        from ottla.spark.pipelines.deep_check import checked_schema
        from ottla.spark.pipelines.listener import BoardListener
        from ottla.spark.pipelines.sessions import closing, is_classic, open_session

        # Functions that were registered with one JVM, such as UDFs, are not known to the next.
        pipeline = self._pipeline if self._is_first else self._reload()
        self._display.say("starting Spark ...")
        log = None if self._debug else self._log
        spark = open_session(pipeline, master=master, remote=remote, log=log, early=self._early)
        # PySpark sets a handler with each session; ours stays when the session ends.
        handlers.enter_context(stopped_by_signals(stop))
        with closing(spark):
            show = self._display.rows if is_classic(spark) else None
            compiler = Compiler(
                pipeline,
                spark,
                self._bootstrap,
                once=self._once,
                backfill=self._backfill,
                show=show,
            )
            if self._is_first:
                for flow in self._flows:
                    checked_schema(compiler, flow)
                    if self._backfill:
                        compiler.check_backfill(flow)
            self._is_first = False
            spark.streams.addListener(BoardListener(board))
            with self._display.live(board):
                yield compiler


def spark_version() -> str:
    """Of the client that is installed here; a server's may differ."""
    for name in ("pyspark", "pyspark-client"):
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def _embedded(stack: ExitStack, pipeline: Pipeline, *, keeps: bool) -> str:
    """A broker in this process, with the samples of the pipeline in it."""
    from ottla.spark.pipelines.preflight import fill

    # Looked up, not imported: the room of tests stands beside this one.
    broker_class = import_module("ottla").EmbeddedBroker
    directory = pipeline.places.state / "broker" if keeps else None
    broker = stack.enter_context(broker_class(directory))
    bootstrap: str = broker.bootstrap
    count = fill(bootstrap, pipeline.definition)
    kept = f"its data is kept in {directory}" if keeps else "its data ends with the run"
    complain(f"started a broker at {bootstrap} with {count} sample records; {kept}")
    return bootstrap


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop; PySpark has a handler of its own, which cancels jobs."""
    before = {
        number: signal.signal(number, lambda *_: stop())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Terminated(BaseException):
    """SIGTERM, while no flows run that could be stopped."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises `Terminated`, so that all that has been opened is closed."""

    def end(*_: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def sentences(*, debug: bool) -> Iterator[None]:
    """Turn errors of a pipeline or its environment into a sentence and a status."""
    from ottla.spark.errors import SparkError
    from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem

    try:
        yield
    except DefinitionError as error:
        _end(error, error.problems, DEFINITION, debug=debug)
    except (EnvironmentProblem, SparkError) as error:
        _end(error, [str(error)], SURROUNDINGS, debug=debug)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Terminated:
        complain("ended by SIGTERM; the next run continues from the checkpoints")
        raise typer.Exit(TERMINATED) from None


def _end(error: BaseException, problems: Sequence[str], status: int, *, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exception(error)
    for problem in problems:
        complain(problem)
    sys.stdout.flush()
    raise typer.Exit(status)
