"""A real broker in this process, on a real socket, until the block ends.

    with ottla.EmbeddedBroker() as broker:
        confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

It runs an event loop in a thread of its own, so that blocking clients can be used beside it, and
works as `async with` too. Without a directory it keeps its data in a temporary one and does not
sync it; with a directory the data stays, as durable as that of `ottla broker`. With
`security=Secured(...)` it wants TLS and a login. With `registry=True` it serves a schema registry
at `registry_url`.

With `nodes=3` it is three nodes, to test how a client takes the death of a broker and the move of
a partition:

    with ottla.EmbeddedBroker(nodes=3) as broker:
        broker.kill_node(2)  # as if its process were killed; `start_node(2)` starts it again
        broker.move("orders", 0, 3)  # node 3 leads the partition from now on

With `processes=True` the nodes are processes below a supervisor, as of `ottla broker --nodes`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.errors import BrokerNotRunning, CannotOpenDirectory
from ottla.broker.running.run import new_event_loop
from ottla.broker.topics import create_topic, delete_topic, existing
from ottla.client import arguments
from ottla.client.admin.types import Acl
from ottla.client.errors import BadArgument, WrongPlace
from ottla.errors import OttlaError
from ottla.metadata.config.broker import load_broker_config
from ottla.testing.nodes import Nodes
from ottla.testing.secured import (
    Secured,
    acl_change,
    as_properties,
    certificates,
    options_of,
    user_changes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from types import TracebackType

    from ottla.broker.cluster import Cluster
    from ottla.broker.running.node import Node
    from ottla.client.security import Security
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.testing.processes import Processes
    from ottla.testing.secured import ClientKind

# Tests start and stop groups often and should not wait for them.
TEST_DEFAULTS: Final = {
    "group.share.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "100",
}


MAX_NODES: Final = 64  # as of `ottla broker --nodes`; each has threads of its own


class EmbeddedBroker:
    """`bootstrap` is its address while it runs. `config` takes Kafka's broker settings.

    >>> from ottla import EmbeddedBroker, Producer, Secured
    >>> secured = Secured(users={"bob": "secret"}, acls=["allow bob write,create topic:orders"])
    >>> with EmbeddedBroker(security=secured) as broker:
    ...     sorted(broker.properties("bob"))[:3]
    ['bootstrap.servers', 'sasl.mechanism', 'sasl.password']
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        config: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        nodes: int = 1,
        processes: bool = False,
        security: Secured | None = None,
        console: bool = False,
        registry: bool = False,
    ) -> None:
        if not isinstance(data_dir, str | os.PathLike | None):
            raise arguments.wrong_type("data_dir", "a path", data_dir)
        given = {} if config is None else arguments.mapping("config", config, "values by key")
        if security is not None:
            arguments.instance("security", security, Secured, "Secured(...)")
        arguments.whole("nodes", nodes, 1, MAX_NODES)
        arguments.flag("processes", processes)
        arguments.flag("console", console)
        if console and processes:
            raise BadArgument("console: not with processes=True; `ottla broker --nodes` has one")
        if (nodes > 1 or processes) and not {"listeners", "node.id"}.isdisjoint(given):
            raise BadArgument("config: with several nodes, listeners and node.id are not yours")
        self._has_processes = processes
        self._host = host
        self._port = port
        self._node_count = nodes
        arguments.flag("registry", registry)
        self._registry = registry
        self._settings = {**TEST_DEFAULTS, **given}
        self._security = security
        self._console = console
        self._first_config = self._config(1, port)  # a wrong setting is told at once
        self._passwords = {} if security is None else dict(security.users)
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._temporary: Path | None = None
        self._nodes: Nodes | None = None
        self._processes: Processes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def _config(self, node_id: int, port: int) -> BrokerConfig:
        listening = {"listeners": f"PLAINTEXT://{self._host}:{port}"}
        if self._security is not None:
            listening = self._security.config(self._host, port)
        if self._registry:
            has_tls = self._security is not None and self._security.has_tls
            address = f"{'https' if has_tls else 'http'}://{self._host}:0"
            listening["ottla.registry.listener"] = address
        chosen = {**listening, **self._settings}
        if self._console and node_id == 1:
            chosen.setdefault("ottla.console.listener", "http://127.0.0.1:0")
        if self._node_count > 1 and not self._has_processes:
            chosen["node.id"] = str(node_id)
        sets = [f"{key}={value}" for key, value in chosen.items()]
        return load_broker_config(sets=sets, sets_from="config")

    @property
    def bootstrap(self) -> str:
        """host:port for `bootstrap.servers`; with several nodes, that of each that runs."""
        return ",".join(self.nodes.values())

    @property
    def registry_url(self) -> str:
        """Where its schema registry is; the broker is made with `registry=True`."""
        url = self._served.registry_url
        if url is None:
            raise BadArgument("this broker serves no schema registry; make it with registry=True")
        return url

    @property
    def nodes(self) -> dict[int, str]:
        """The nodes that run, and their addresses."""
        return self._served.addresses

    @property
    def _served(self) -> Nodes | Processes:
        served = self._nodes or self._processes
        if served is None:
            raise BrokerNotRunning("the broker is not running; use it in a with block")
        return served

    @property
    def console_url(self) -> str:
        """Where to look at it in a browser, with `console=True`; see `ottla broker --console`."""
        found = None if self._nodes is None else self._nodes.console_url
        if found is None:
            raise BrokerNotRunning(
                "no console runs; use EmbeddedBroker(console=True) in a with block"
            )
        return found

    def kill_node(self, node: int) -> None:
        """End a node as if its process were killed: nothing is synced, no client is told.

        Its partitions have no leader until `start_node` starts it again, or `stop_node` gives it up
        and the other nodes take over. With `processes=True` the supervisor starts it again at once,
        and `start_node` waits for that.
        """
        self._of_node(node, lambda served: served.kill(node))

    def stop_node(self, node: int) -> None:
        """Stop a node; the others lead its partitions. Not with `processes=True`."""
        self._of_node(node, lambda served: served.stop(node))

    def start_node(self, node: int) -> None:
        """Start a node again that was killed or stopped."""
        self._of_node(node, lambda served: served.start(node))

    def move(self, topic: str, partition: int, node: int) -> None:
        """Let another node lead a partition; returns when it serves it."""
        self._of_node(node, lambda served: served.move(topic, partition, node))

    def _of_node(
        self, node: int, act: Callable[[Nodes | Processes], Coroutine[Any, Any, None]]
    ) -> None:
        self._served.check(node)
        self._run(act)

    def start(self) -> EmbeddedBroker:
        """Returns when the broker serves; whatever kept it from that is raised here.

        A broker that runs is left as it is, so `with broker.start():` works, too.
        """
        if self._thread is not None:
            self._check_process()
            return self
        self._pid = os.getpid()
        ready: threading.Event = threading.Event()
        failure: list[BaseException] = []
        path = self._data_dir
        if path is None:
            path = self._temporary = Path(tempfile.mkdtemp(prefix="ottla-"))

        def run() -> None:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                self._loop = runner.get_loop()
                stop = asyncio.Event()
                self._stop = stop
                try:
                    runner.run(self._serve(path, ready, stop))
                except BaseException as error:  # noqa: BLE001  # raised again by start()
                    failure.append(error)
                finally:
                    ready.set()

        self._thread = threading.Thread(target=run, name="ottla-broker", daemon=True)
        self._thread.start()
        ready.wait()
        if failure:
            self.stop()
            error = failure[0]
            if isinstance(error, OSError) and not isinstance(error, OttlaError):
                raise CannotOpenDirectory(
                    f"data_dir {str(path)!r}: {error.strerror or error}; give a directory that "
                    "can be made and written"
                ) from error
            raise error
        return self

    async def _serve(self, path: Path, ready: threading.Event, stop: asyncio.Event) -> None:
        served = self._processes_at(path) if self._has_processes else self._nodes_at(path)
        try:
            await served.start_all()
            changes = [] if self._security is None else list(self._security.changes())
            if changes:
                await served.cluster.change(*changes)
            if isinstance(served, Nodes):
                self._nodes = served
            else:
                self._processes = served
            ready.set()
            await stop.wait()
        finally:
            await served.stop_all()

    def _nodes_at(self, path: Path) -> Nodes:
        return Nodes(
            self._config if self._node_count > 1 else lambda *_: self._first_config,
            path,
            count=self._node_count,
            port=self._port,
            ephemeral=self._data_dir is None,
        )

    def _processes_at(self, path: Path) -> Processes:
        # Not needed by most tests.
        from ottla.testing.processes import Processes

        return Processes(
            self._first_config,
            path,
            count=self._node_count,
            ephemeral=self._data_dir is None,
        )

    @property
    def ca_file(self) -> Path:
        """The certificate of the CA that signed the broker's."""
        self._secured()
        return certificates().ca

    def client_certificate(self, name: str) -> Path:
        """A PEM file with a key and a certificate for a client; its user is this name."""
        self._secured()
        return certificates().client(name)

    def security(self, user: str) -> Security:
        """How a user connects with Ottla's own clients."""
        secured = self._secured()
        if secured.protocol != "SSL" and user not in self._passwords:
            raise BadArgument(f"{user!r:.60} is not one of the users: {list(self._passwords)}")
        return secured.security(user, self._passwords.get(user))

    def properties(self, user: str) -> dict[str, Any]:
        """The properties of a confluent-kafka client for this user."""
        return self.options(user, "librdkafka")

    def options(self, user: str, client: ClientKind) -> dict[str, Any]:
        """Arguments of a client of another kind: aiokafka, kafka-python, java or ottla."""
        return options_of(client, self.bootstrap, self.security(user))

    def properties_file(self, user: str) -> Path:
        """A file for `--command-config`, of Kafka's tools and of Ottla's commands."""
        path = certificates().directory / f"{secrets.token_hex(8)}.properties"
        path.touch(0o600)
        path.write_text(as_properties(self.options(user, "java")))
        return path

    def create_user(self, name: str, password: str) -> None:
        """Create a user, or give it another password; the same as any admin client would."""
        self._secured()
        changes = user_changes(name, password)
        self._change(lambda cluster: cluster.change(*changes))
        self._passwords[name] = password

    def create_acls(self, *acls: str) -> None:
        """Create ACLs, each as text: `allow bob read topic:orders*`."""
        change = acl_change([acl for text in acls for acl in Acl.parse(text)])
        self._change(lambda cluster: cluster.change(change))

    def _secured(self) -> Secured:
        if self._security is None:
            raise BadArgument("this broker is not secured; make it with security=Secured(...)")
        return self._security

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; the same as any admin client would, without one."""
        self._change(
            lambda cluster: create_topic(cluster, name, partitions=partitions, configs=configs)
        )

    def delete_topic(self, name: str) -> None:
        self._change(lambda cluster: delete_topic(cluster, partial(existing, name=name)))

    @property
    def _node(self) -> Node | None:
        return None if self._nodes is None else self._nodes.any

    def _call(self, function: Callable[[Node], Coroutine[Any, Any, object]]) -> None:
        """Run a function of a node of this process in its thread; what it raises is raised here."""
        nodes = self._served
        assert isinstance(nodes, Nodes)
        self._run(lambda _: function(nodes.any))

    def _change(self, function: Callable[[Cluster], Coroutine[Any, Any, object]]) -> None:
        """Change the cluster; what that raises is raised here. All nodes know of it afterwards.

        With `processes=True` the other nodes learn of it within a second.
        """

        async def change(served: Nodes | Processes) -> None:
            await function(served.cluster)
            await served.changed()

        self._run(change)

    def _run(self, function: Callable[[Nodes | Processes], Coroutine[Any, Any, object]]) -> None:
        served, loop = self._served, self._loop
        assert loop is not None
        self._check_process()
        asyncio.run_coroutine_threadsafe(function(served), loop).result()

    def stop(self) -> None:
        """Stops cleanly; a temporary directory is removed."""
        self._check_process()
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._loop is not None and (self._nodes or self._processes) is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()
        self._nodes = self._processes = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _check_process(self) -> None:
        if self._thread is not None and self._pid != os.getpid():
            raise WrongPlace(
                "this broker was started before the process forked and runs in the parent; connect "
                "to its address from here, but change and stop it there, or start another one"
            )

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> EmbeddedBroker:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)
