"""Brokers in this process, for tests with any Kafka client: `with Cluster() as cluster: …cluster.bootstrap_servers…`.

Each broker runs on its own thread and event loop, so that blocking clients work in the test's thread, and asyncio
clients on the test's loop. Brokers listen on loopback ports. Their logs and the metadata are on a real disk, by
default in a temporary directory. Every call blocks, for a minute at most; `async with` starts and stops the cluster
without blocking the caller's loop.
"""

import asyncio
import os
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from msgspec.structs import replace

from odradek.broker.lifecycle import Broker
from odradek.broker.security.context import Session
from odradek.clients import admin, blocking
from odradek.clients.arguments import whole_number
from odradek.config.broker import BrokerConfig
from odradek.config.properties import property_texts
from odradek.metadata.image import ClusterImage, PartitionImage
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, KafkaError, SecurityProtocol, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.runtime import system_runtime
from odradek.runtime.threads import check_threads
from odradek.security import AclBinding
from odradek.testing.conditions import eventually
from odradek.testing.in_process.broker_thread import LIMIT_S, BrokerThread
from odradek.testing.in_process.cluster_security import BROKER, ClusterSecurity, exactly
from odradek.testing.in_process.cut_network import CutNetwork, Cuts
from odradek.testing.in_process.request_faults import Delay, Failure, RequestFaults, api_named, error_named
from odradek.testing.in_process.token_issuer import TokenIssuer
from odradek.testing.in_process.transaction_faults import TransactionFaults
from odradek.testing.machine_clock import MachineClock, monotonic
from odradek.testing.servers.ports import HeldPort

T = TypeVar("T")

_QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.rebalance.journal.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "100",
}
"""The defaults would cost a test seconds of waiting and 50 logs, and add the topic `__rebalances`."""

_LASTING: Final = {
    "auto.leader.rebalance.enable": "false",
    "connections.max.idle.ms": "-1",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    "log.retention.hours": "-1",
    "offsets.retention.minutes": str(2**31 - 1),
    "producer.id.expiration.ms": str(2**31 - 1),
    "transactional.id.expiration.ms": str(2**31 - 1),
}
"""With the defaults, brokers that serve for some minutes delete records and offsets with old timestamps, move leaders
and close connections. Records with the time of a test's frozen clock are accepted."""

_REPLICAS: Final = 3
"""The default replication factor, or the number of brokers if that is lower."""

_RETRY_S: Final = 0.02


class Cluster:
    """Brokers 0 to `brokers` - 1. `config` has Kafka's keys for all brokers; `broker_configs` adds keys by broker id.

    `security` is "ssl", "sasl_plaintext" or "sasl_ssl", and `users` has passwords by user name; `settings` returns what
    a client needs then, and `tokens` issues those of OAUTHBEARER. With `acls`, each what `allow` takes, brokers refuse
    what no ACL allows. `data_dir` is the directory of the brokers' data. `start` raises `ConfigurationError` for an
    unknown key; calls raise `ValueError` for unknown brokers, APIs, errors and users, `RuntimeError` if the cluster or
    the broker does not run, and `TimeoutError` after a minute.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        config: Mapping[str, Any] | None = None,
        broker_configs: Mapping[int, Mapping[str, Any]] | None = None,
        security: str = "plaintext",
        users: Mapping[str, str] | None = None,
        acls: Collection[tuple[str, str, str]] | None = None,
        data_dir: str | Path | None = None,
    ) -> None:
        if whole_number("brokers", brokers) < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        if security.upper() not in SecurityProtocol.__members__:
            raise ValueError(f"security must be ssl, sasl_plaintext, sasl_ssl or plaintext, not {security!r}")
        self._protocol = SecurityProtocol[security.upper()]
        self._users, self._acls = dict(users or {}), acls
        self.tokens = TokenIssuer()
        self._security: ClusterSecurity
        self._ids = range(brokers)
        replicas = str(min(brokers, _REPLICAS))
        factors = "default", "offsets.topic", "transaction.state.log"
        replicated = {f"{each}.replication.factor": replicas for each in factors}
        self._config = {**_QUICK, **_LASTING, **replicated, **property_texts(config or {})}
        self._broker_configs = {broker_id: property_texts(each) for broker_id, each in (broker_configs or {}).items()}
        for broker_id in self._broker_configs:
            self._check_id(broker_id)
        self._given_dir = data_dir
        self._temporary: weakref.finalize[..., Cluster] | None = None
        """Removes the temporary directory, if there is one."""
        self._is_running, self._is_inherited = False, False
        self._threads: dict[int, BrokerThread] = {}
        self._ports: dict[int, HeldPort] = {}
        self._addresses: dict[int, str] = {}
        self._requests, self._cuts = RequestFaults(), Cuts()
        self.transactions = TransactionFaults(self._threads, self.kill)
        self._networks: dict[int, CutNetwork] = {}

    # ---- start and stop -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every broker; return when all of them serve and know each other. `with` calls it."""
        if self._is_running:
            raise RuntimeError("the cluster is running already; stop() it first")
        check_threads("a Cluster")
        self._folder = Path(self._given_dir or tempfile.mkdtemp(prefix="odradek-"))
        if self._given_dir is None:
            self._temporary = weakref.finalize(self, shutil.rmtree, self._folder)
        self._is_running = True
        _running.add(self)
        try:
            self._security = ClusterSecurity(self._protocol, self._users, self._folder / "security", self.tokens)
            # The first broker creates the tree and becomes the controller; the others start at the same time.
            self._start_brokers(self._ids[:1])
            first = self._threads[self._ids[0]]
            users = first.run(self._security.store_users(first.broker.store), "store the users")
            self._start_brokers(self._ids[1:])
            everybody = set(self._ids)
            eventually(
                lambda: all(
                    set(broker.image.brokers) == everybody and broker.image.user_configs.keys() >= set(users)
                    for broker in self._serving()
                ),
                within_s=LIMIT_S,
                what="every broker knows all the others and the users",
            )
            for acl in self._acls or ():
                self.allow(*acl)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every broker cleanly, and remove the temporary directory. `with` calls it; a second call does nothing.

        Faults end first, so that brokers can hand over their partitions through the controller. In a process that was
        forked from that of the brokers it does nothing.
        """
        if self._is_inherited:
            return
        try:
            if self._is_running:
                self.heal()
            for thread in self._threads.values():
                thread.resume()
            for broker_id in list(self._threads):
                self._threads.pop(broker_id).stop()
        finally:
            self._is_running = False
            _running.discard(self)
            self.tokens.close()
            for port in self._ports.values():
                port.release()
            if self._temporary is not None:
                self._temporary()
                self._temporary = None

    def kill(self, broker_id: int) -> None:
        """Kill a broker as a crash does: nothing is flushed or announced, and its sockets are closed."""
        thread = self._thread(broker_id)
        del self._threads[broker_id]
        thread.kill()

    def restart(self, broker_id: int) -> None:
        """Start a broker again, on its port and over its data; a running broker is stopped cleanly first."""
        self._check_here()
        self._check_id(broker_id)
        thread = self._threads.pop(broker_id, None)
        if thread is not None:
            thread.stop()
        self._start_brokers([broker_id])

    def pause(self, broker_id: int) -> None:
        """Pause a broker as SIGSTOP does: it stays connected, and neither answers nor renews its session.

        It counts as dead after `zookeeper.session.timeout.ms`, by default 6 s.
        """
        self._thread(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker, which then notices what it has missed."""
        self._thread(broker_id).resume()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # ---- state --------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` of every broker, by id, with commas between; the same before and after a `restart`."""
        self._check_running()
        return ",".join(self._addresses[broker_id] for broker_id in self._ids)

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of the brokers that run, paused ones included."""
        return tuple(sorted(self._threads))

    def address(self, broker_id: int) -> str:
        """Return `HOST:PORT` of one broker, also of a killed one."""
        self._check_running()
        self._check_id(broker_id)
        return self._addresses[broker_id]

    def described(self, broker_id: int) -> ClusterImage:
        """Return the cluster as one broker knows it at this moment: brokers, topics, leaders."""
        return self._thread(broker_id).broker.image

    def controller(self) -> int:
        """Return the id of the controller; wait until there is one."""
        return self._until(self._controller, LIMIT_S, "a controller")[0]

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the id of a partition's current leader; None without a leader or without such a partition."""
        self._check_running()
        known = [image for broker in self._serving() if (image := self._partition(broker, topic, partition))]
        if not known:
            return None
        latest = max(known, key=lambda image: image.leader_epoch)
        leads = any(
            b.broker_id == latest.leader and b.partitions.leader_or_none(topic, partition) for b in self._serving()
        )
        return latest.leader if leads else None

    def wait_for_leader(
        self, topic: str, partition: int, *, not_in: Collection[int] = (), timeout_s: float = LIMIT_S
    ) -> int:
        """Wait until a partition has a leader that is not in `not_in`, and return its id."""
        for broker_id in not_in:
            self._check_id(broker_id)

        def found() -> tuple[int] | None:
            leader = self.leader(topic, partition)
            return None if leader is None or leader in not_in else (leader,)

        other = f" other than {', '.join(map(str, not_in))}" if not_in else ""
        return self._until(found, timeout_s, f"a leader of {topic}-{partition}{other}")[0]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        assignment: Mapping[int, Collection[int]] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a topic; when this returns, every partition has a leader, and every broker that serves knows it.

        `assignment` maps partitions to brokers, and replaces `partitions` and `replication_factor`. Raises the
        controller's `KafkaError`, and `TypeError` for values of other types.
        """
        wanted = admin.NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            assignments=assignment or {},
            configs=config or {},
        ).message()
        placed = {each["partition_index"]: tuple(each["broker_ids"]) for each in wanted["assignments"]}
        topic = NewTopic(
            name=name,
            num_partitions=wanted["num_partitions"],
            replication_factor=wanted["replication_factor"],
            assignment=placed,
            config={each["name"]: each["value"] for each in wanted["configs"]},
        )
        deadline = monotonic() + LIMIT_S
        while not self._create(topic):
            if monotonic() > deadline:
                raise TimeoutError(f"the topic {name} could not be created within {LIMIT_S:.0f} s")
            time.sleep(_RETRY_S)
        for number in placed or range(partitions):
            self.wait_for_leader(name, number)
        self._until(lambda: all(name in broker.image.topics for broker in self._serving()), LIMIT_S, f"topic {name}")

    def _create(self, topic: NewTopic) -> bool:
        """Return True if the controller created the topic, False to retry. Raises the controller's other errors."""
        (controller,) = self._until(self._controller, LIMIT_S, "a controller")
        thread = self._thread(controller)
        try:
            (created,) = thread.run(thread.broker.create_topics([topic]), f"create the topic {topic.name}")
        except (KafkaError, UnavailableError) as error:
            if isinstance(error, KafkaError) and error.code is not ErrorCode.not_controller:
                raise
            return False
        if created.error is not None:
            raise created.error
        return True

    # ---- clients ------------------------------------------------------------------------------------------------

    def settings(self, user: str = BROKER, client: str = "odradek", *, mechanism: str = "PLAIN") -> dict[str, Any]:
        """Return the settings with which `user` connects, the brokers' addresses among them.

        `client` is odradek, confluent-kafka, kafka-python or aiokafka, for keyword arguments and their like, or java,
        for properties. `mechanism` is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. The user `broker` may do
        everything.
        """
        return self._security.settings(user, client, mechanism, self.bootstrap_servers)

    def allow(self, user: str, operation: str, resource: str) -> None:
        """Add an ACL: `allow("alice", "Write", "topic:orders")`; `topic:ord*` is a prefix, `topic:*` every topic.

        When this returns, or `revoke`, every broker that serves has the change. The cluster needs `acls`, maybe empty.
        """
        self._change_acl(self._security.acl(user, operation, resource), is_allowed=True)

    def revoke(self, user: str, operation: str, resource: str) -> None:
        """Remove an ACL of `allow`; connections stay open."""
        self._change_acl(self._security.acl(user, operation, resource), is_allowed=False)

    def _change_acl(self, acl: AclBinding, *, is_allowed: bool) -> None:
        with self.admin() as admin:
            if is_allowed:
                admin.create_acls([acl])
            else:
                admin.delete_acls([exactly(acl)])

        def is_known() -> bool:
            every = [(broker.image.acls or {}).get(acl.pattern, ()) for broker in self._serving()]
            return all((acl.entry in entries) == is_allowed for entries in every)

        self._until(is_known, LIMIT_S, f"every broker has the change of {acl}")

    def producer(self, **settings: Any) -> blocking.Producer:
        """Return a blocking producer for this cluster, for a `with` block; `settings` are those of `Producer`."""
        return blocking.Producer(**{**self.settings(), **settings})

    def consumer(self, *topics: str, **settings: Any) -> blocking.Consumer:
        """Return a blocking consumer that starts at the beginning of each partition, for a `with` block."""
        return blocking.Consumer(*topics, **{**self.settings(), "auto_offset_reset": "earliest", **settings})

    def simple_consumer(self, **settings: Any) -> blocking.SimpleConsumer:
        """Return a blocking consumer without a group and positions, for a `with` block."""
        return blocking.SimpleConsumer(**{**self.settings(), **settings})

    def admin(self, **settings: Any) -> blocking.Admin:
        """Return a blocking admin client, for a `with` block."""
        return blocking.Admin(**{**self.settings(), **settings})

    # ---- faults -------------------------------------------------------------------------------------------------

    def disconnect(self, brokers: Collection[int], others: Collection[int], *, one_way: bool = False) -> None:
        """Cut the connections between the two sets of brokers until `heal`; clients still reach all of them.

        With `one_way`, only data from `brokers` to `others` is held back. Connections stay open but silent, as in a
        network that drops packets; held data arrives after `heal`. Connections to the metadata tree are not cut.
        """
        self._check_running()
        for broker_id in (*brokers, *others):
            self._check_id(broker_id)
        both = set(brokers) & set(others)
        if both:
            raise ValueError(
                f"a broker can't be cut off from itself; name on one side only: {', '.join(map(str, sorted(both)))}"
            )
        for source in brokers:
            for target in others:
                self._cuts.cut(source, target)
                if not one_way:
                    self._cuts.cut(target, source)
        self._apply_cuts()

    def delay(self, seconds: float, api: str | ApiKey | None = None, brokers: Collection[int] | None = None) -> None:
        """Delay every request for `api` (None: any) at `brokers` (None: all) until `heal`.

        Requests from other brokers are delayed, too. Requests of one connection are delayed one after the other.
        """
        self._check_running()
        if not seconds > 0:
            raise ValueError(f"a delay must be more than 0 seconds, not {seconds!r}")
        for broker_id in brokers or ():
            self._check_id(broker_id)
        ids = None if brokers is None else frozenset(brokers)
        self._requests.add(Delay(seconds=seconds, api=None if api is None else api_named(api), brokers=ids))

    def fail_next(
        self, api: str | ApiKey, error: str | int | ErrorCode, times: int = 1, broker: int | None = None
    ) -> None:
        """Answer the next `times` requests of clients for `api` with a Kafka error, without processing them.

        `api` and `error` have Kafka's names, in any case: `fail_next("produce", "NOT_LEADER_OR_FOLLOWER")`. `broker`
        limits this to one broker. A produce request with acks=0 has no response: its connection is closed.
        """
        self._check_running()
        if times < 1:
            raise ValueError(f"times must be at least 1, not {times}")
        if broker is not None:
            self._check_id(broker)
        self._requests.add(Failure(api=api_named(api), error=error_named(error), times=times, broker=broker))

    def expire_sessions(self, user: str) -> int:
        """Close the connections of `user` as if their sessions had expired; return how many there were."""
        name, closed = self._security.principal(user), list[Session]()

        def close(broker: Broker) -> None:
            for session in [each for each in broker.server.sessions if each.principal.name == name]:
                closed.append(session)
                session.connection.close("a test expired its session")

        for thread in list(self._threads.values()):
            thread.call(partial(close, thread.broker))
        return len(closed)

    def rotate_certificate(self) -> None:
        """Replace the brokers' certificate; when this returns, new connections get the new one."""
        self._check_running()
        self._security.rotate()
        for broker in self._serving():
            address = self._addresses[broker.broker_id]
            self._until(partial(self._security.is_current, address), LIMIT_S, f"a new certificate at {address}")

    def heal(self) -> None:
        """Undo every `disconnect`, `delay`, `fail_next` and `tokens.fail`. Paused and killed brokers stay so."""
        self._check_running()
        self.tokens.heal()
        self._requests.clear()
        self._cuts.heal()
        self._apply_cuts()

    def _apply_cuts(self) -> None:
        for broker_id, thread in list(self._threads.items()):
            thread.call(self._networks[broker_id].look)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _leave_to_parent(self) -> None:
        """Let go of what a fork has inherited of the brokers, so that it ends where the parent ends it.

        A descriptor gets another file and stays open, since an object of the parent's may still close its number.
        """
        self._is_inherited = True
        if self._temporary is not None:
            self._temporary.detach()
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in map(int, os.listdir("/dev/fd")):
            if self._is_brokers(descriptor):
                os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

    def _is_brokers(self, descriptor: int) -> bool:
        """Return whether it is a socket of the brokers, or of the issuer of tokens."""
        ports = {*self._cuts.brokers, self.tokens.port}
        with suppress(OSError):  # it is no socket, or not connected
            inherited = socket.socket(fileno=descriptor)
            try:
                port = inherited.getsockname()[1] if inherited.family is socket.AF_INET else None
                is_between = port in self._requests.from_brokers and inherited.getpeername()[1] in ports
                return port in ports or is_between
            finally:
                inherited.detach()
        return False

    def _start_brokers(self, ids: Collection[int]) -> None:
        threads = {broker_id: self._new_thread(broker_id) for broker_id in ids}
        for thread in threads.values():
            thread.begin()
        failures = {broker_id: thread.started() for broker_id, thread in threads.items()}
        self._threads |= {broker_id: thread for broker_id, thread in threads.items() if failures[broker_id] is None}
        for failure in filter(None, failures.values()):
            raise failure

    def _new_thread(self, broker_id: int) -> BrokerThread:
        if broker_id not in self._ports:
            port = self._ports[broker_id] = HeldPort()
            self._addresses[broker_id] = f"127.0.0.1:{port.number}"
            self._cuts.brokers[port.number] = broker_id
        keys = {
            "broker.id": str(broker_id),
            "listeners": f"{self._security.listener}://{self._addresses[broker_id]}",
            "log.dirs": str(self._folder / f"broker-{broker_id}"),
        }
        secured = self._security.broker_keys(authorize=self._acls is not None) | self._config
        config = BrokerConfig.parse({**secured, **self._broker_configs.get(broker_id, {}), **keys})
        network = self._networks[broker_id] = CutNetwork(broker_id, self._cuts, self._requests.from_brokers)

        def prepare(broker: Broker) -> None:
            broker.server.serve = self._requests.before(broker.server.serve, broker_id)

        runtime = replace(system_runtime(), clock=MachineClock(), network=network)
        return BrokerThread(config, runtime, f"sqlite:///{self._folder}/metadata.sqlite", prepare)

    def _thread(self, broker_id: int) -> BrokerThread:
        self._check_here()
        self._check_id(broker_id)
        thread = self._threads.get(broker_id)
        if thread is None:
            raise RuntimeError(f"broker {broker_id} does not run: it was killed; restart({broker_id}) starts it")
        return thread

    def _check_running(self) -> None:
        if not self._is_running:
            raise RuntimeError("the cluster does not run: use `with Cluster() as cluster:`, or start()")

    def _check_here(self) -> None:
        self._check_running()
        if self._is_inherited:
            raise RuntimeError(
                "the cluster runs in the process that this one was forked from; only its addresses work here"
            )

    def _check_id(self, broker_id: int) -> None:
        if broker_id not in self._ids:
            raise ValueError(f"there is no broker {broker_id!r} in this cluster, only {', '.join(map(str, self._ids))}")

    def _serving(self) -> Iterator[Broker]:
        """Return the brokers that run and are not paused."""
        return (thread.broker for thread in list(self._threads.values()) if not thread.is_paused)

    def _controller(self) -> tuple[int] | None:
        return next(((broker.broker_id,) for broker in self._serving() if broker.metadata_loop.is_controller), None)

    @staticmethod
    def _partition(broker: Broker, topic: str, partition: int) -> PartitionImage | None:
        return broker.image.partition(TopicPartition(topic, partition))

    def _until(self, condition: Callable[[], T | None], within_s: float, what: str) -> T:
        self._check_running()
        found = eventually(condition, within_s=within_s, what=what)
        assert found is not None, "eventually returns what is true"
        return found


_running: Final = weakref.WeakSet[Cluster]()


def _leave_to_parent() -> None:
    for cluster in tuple(_running):
        cluster._leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)
