"""A cluster whose listeners need a login and whose authorizer allows only what ACLs allow.

All workloads of such a seed log in, as the user `application`, by PLAIN or SCRAM; brokers log in to each other. The
clients of this workload write and read the topic `guarded` as the user `clerk`, whose ACLs and password the faults
`revoke_acls` and `rotate_password` change. An intruder tries everything all the time. The promises:

- A request without a login, with a wrong or former password, or without an ACL never succeeds.
- Once every running broker has applied the removal of an ACL, no later write succeeds, and no fetch that is sent later.
- In the end, the clerk writes and reads again, with the newest password.
- A client is throttled while it exceeds a quota, and not once the quota is gone (`metered`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from odradek.broker.lifecycle import Broker
from odradek.clients import Admin, Consumer, Producer
from odradek.clients.admin.user_credentials import UserScramCredentialUpsertion
from odradek.model import OdradekError, TopicPartition
from odradek.security import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.quotas import PRODUCE, QuotaEntity
from odradek.security.sasl.jaas import jaas_text
from odradek.simulation.checks.agreement import agreed
from odradek.simulation.promises import CLIENTS, PATIENCE_S, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.intruder import Intruder
from odradek.simulation.workloads.metered import HOST as METERED
from odradek.simulation.workloads.metered import Metered
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

TOPIC: Final = "guarded"
_PLACE: Final = TopicPartition(TOPIC, 0)
_SCRAM: Final = "SCRAM-SHA-256"
_PASSWORDS: Final = {user: f"{user}-secret" for user in ("broker", "operator", "application", "stranger")}
_RIGHTS: Final = (
    ("application", ResourceType.TOPIC, "*", (AclOperation.READ, AclOperation.WRITE)),
    ("application", ResourceType.GROUP, "*", (AclOperation.READ,)),
    ("application", ResourceType.TRANSACTIONAL_ID, "*", (AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT)),
    ("clerk", ResourceType.TOPIC, TOPIC, (AclOperation.READ, AclOperation.WRITE)),
    ("clerk", ResourceType.GROUP, "grant-{grant}", (AclOperation.READ,)),
)


class _Clerk:
    """The clients of the user `clerk`, whose rights and password change."""

    def __init__(self, world: World) -> None:
        self.passwords = ["clerk-secret-0"]
        """All passwords that the user had; the last one counts."""
        self.former: set[str] = set()
        """The passwords that every running broker knows to be replaced."""
        self.revocation = 0
        """The number of the removal that every running broker has applied; 0 while there is none."""
        self._removed = AclOperation.ANY
        self.written = self.read = 0
        self._consumer: Consumer | None = None
        self._allowed_fetches = 0
        """The number of the consumer's fetches that were sent before the removal."""
        self._world = world
        self._chance = world.simulation.entropy("clerk")

    def forbid(self, removal: int, operation: AclOperation) -> None:
        """Record that no running broker allows new requests of an operation any more.

        As in Kafka, a fetch that a broker allowed before may wait for a record, and get it. The consumer sends no fetch
        before it has the response to the last one.
        """
        self.revocation, self._removed = removal, operation
        self._allowed_fetches = 0 if self._consumer is None else int(self._consumer.metrics()["fetch_total"]) + 1

    def settings(self) -> dict[str, Any]:
        """Return the settings of a client that knows the newest password."""
        return {**_settings("clerk", _SCRAM, self.passwords[-1]), **CLIENTS}

    async def write(self) -> None:
        """Write with one producer after the other, until cancelled."""
        while True:
            limits: Any = {"delivery_timeout_ms": 6_000, "max_block_ms": 6_000}
            producer = self._world.producer("clerk-writer", **self.settings(), **limits)
            try:
                await producer.start()
                for _ in range(self._chance.choice((5, 50))):
                    await self._write(producer)
                    await asyncio.sleep(self._chance.choice((0.0, 0.1, 1.5)))
            except OdradekError:
                await asyncio.sleep(0.5)
            finally:
                await producer.close()

    async def _write(self, producer: Producer) -> None:
        before = self.revocation
        await (await producer.send(TOPIC, b"of the clerk", partition=0))
        if before and before == self.revocation and self._removed is not AclOperation.READ:
            raise BrokenPromiseError(f"a record of the clerk was written to {TOPIC} without an ACL")
        self.written += 1

    async def consume(self) -> None:
        """Read with one consumer after the other, until cancelled."""
        while True:
            consumer = self._world.consumer("clerk-reader", auto_offset_reset="latest", **self.settings())
            consumer.assign([_PLACE])
            self._consumer, self._allowed_fetches = consumer, 0
            try:
                await consumer.start()
                for _ in range(self._chance.choice((5, 50))):
                    await self._read(consumer)
            except OdradekError:
                await asyncio.sleep(0.5)
            finally:
                await consumer.close()

    async def _read(self, consumer: Consumer) -> None:
        records = await consumer.poll(500)
        self.read += len(records)
        is_forbidden = bool(self.revocation) and self._removed is not AclOperation.WRITE
        if records and is_forbidden and consumer.metrics()["fetch_total"] > self._allowed_fetches:
            raise BrokenPromiseError(f"the clerk read records of {TOPIC} without an ACL")


class Security(Workload):
    """A clerk, whose rights and password change, a client whose quota does, another writer, and an intruder."""

    config: ClassVar[Mapping[str, str]] = {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": f"PLAIN,{_SCRAM}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas_text(
            "PLAIN",
            {"username": "broker", "password": _PASSWORDS["broker"]}
            | {f"user_{user}": password for user, password in _PASSWORDS.items()},
        ),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:operator",
    }
    clients: ClassVar[Sequence[str]] = ("clerk-writer", "clerk-reader")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self._clerk = _Clerk(world)
        self._intruder = Intruder(world, TOPIC, _PASSWORDS["stranger"], self._clerk.former)
        self._tasks: list[asyncio.Task[None]] = []
        self._changes: list[asyncio.Task[None]] = []
        self._removals = 0
        self._changing = asyncio.Lock()
        self._chance = world.simulation.entropy("removals")
        world.client_settings = self._settings_on

    def _settings_on(self, host: str) -> dict[str, Any]:
        """Return the login of a host's clients."""
        if host == "admin":
            return _settings("operator", "PLAIN", _PASSWORDS["operator"])
        mechanism = self.world.simulation.entropy(f"login on {host}").choice(("PLAIN", _SCRAM))
        return _settings("application", mechanism, _PASSWORDS["application"])

    async def start(self) -> None:
        """Create users and ACLs, start the clients, and return when the clerk writes and reads."""
        await self._set_passwords({"application": _PASSWORDS["application"], "clerk": self._clerk.passwords[-1]})
        await self._create_acls("application", "clerk")
        brokers = self.world.running.values()
        await until(lambda: all({"application", "clerk"} <= each.image.user_configs.keys() for each in brokers))
        await until(lambda: all(len(_acls_of(each.image.acls or {}, "User:clerk")) == 3 for each in brokers))
        await create_topic(self.world, TOPIC, 1)
        clients = {
            "clerk-writer": self._clerk.write(),
            "clerk-reader": self._clerk.consume(),
            "other-writer": self._feed(),
            "intruder": self._intruder.run(),
            METERED: Metered(self.world, _PLACE, self._by_admin, self._is_applied).run(),
        }
        self._tasks = [self.world.spawn(name, client) for name, client in clients.items()]
        await self._until_at_work()

    async def finish(self) -> list[str]:
        """Wait until all changes are known, and the clerk writes and reads; then try the former passwords."""
        async with asyncio.timeout(PATIENCE_S):
            for change in self._changes:
                await change
        await agreed(self.world, within_s=PATIENCE_S)
        await self._until_at_work()
        for password in self._clerk.passwords[:-1]:
            for number in self.world.running:
                await self._intruder.must_fail("clerk", password, number)
        await cancel(*self._tasks)
        return []

    async def _until_at_work(self) -> None:
        clerk = self._clerk
        written, read = clerk.written, clerk.read

        def is_at_work() -> bool:
            raise_failures(self._tasks)
            return clerk.written > written and clerk.read > read

        try:
            await until(is_at_work, within_s=PATIENCE_S, each_s=0.1)
        except TimeoutError:
            raise BrokenPromiseError("a user with ACLs cannot write and read") from None

    # ---- what the faults do

    def revoke(self) -> None:
        """Begin to remove the clerk's ACLs, or those of one of its operations."""
        self._begin(self._revoke())

    def grant(self) -> None:
        """Begin to create the clerk's ACLs again."""
        self._begin(self._grant())

    def rotate(self) -> None:
        """Begin to change the clerk's password."""
        self._begin(self._rotate())

    def _begin(self, change: Coroutine[Any, Any, None]) -> None:
        self._changes.append(self.world.spawn("security-admin", change))

    async def _revoke(self) -> None:
        async with self._changing:
            operation = self._chance.choice((AclOperation.ANY, AclOperation.READ, AclOperation.WRITE))
            some = AclFilter(principal="User:clerk", operation=operation)
            await self._by_admin(lambda admin: admin.delete_acls([some]))
            self._removals += 1

            def is_removed(broker: Broker) -> bool:
                left = _acls_of(broker.image.acls or {}, "User:clerk")
                return not any(operation in (AclOperation.ANY, each.operation) for each in left)

            if await self._is_applied(is_removed):
                self._clerk.forbid(self._removals, operation)

    async def _grant(self) -> None:
        async with self._changing:
            self._clerk.revocation = 0
            await self._create_acls("clerk")

    async def _rotate(self) -> None:
        clerk = self._clerk
        async with self._changing:
            before = clerk.passwords[-1]
            known = [broker.image.user_configs.get("clerk") for broker in self.world.running.values()]
            clerk.passwords.append(f"clerk-secret-{len(clerk.passwords)}")
            await self._set_passwords({"clerk": clerk.passwords[-1]})
            # A quota that is never reached: it must not cost the password, and all brokers must know it in the end.
            quota = {PRODUCE: 1e9 + len(clerk.passwords)}
            await self._by_admin(lambda admin: admin.alter_client_quotas(QuotaEntity(user="clerk"), quota))
            if await self._is_applied(lambda broker: broker.image.user_configs.get("clerk") not in known):
                clerk.former.add(before)

    async def _is_applied(self, condition: Callable[[Broker], bool]) -> bool:
        """Return whether every running broker meets the condition soon, which those without the tree do not."""
        with suppress(TimeoutError):
            await until(lambda: all(map(condition, self.world.running.values())), within_s=5.0)
            return True
        return False

    async def _by_admin(self, call: Callable[[Admin], Coroutine[Any, Any, object]]) -> None:
        """Repeat a call until it succeeds."""
        while True:
            with suppress(OdradekError):
                async with self.world.admin("security-admin", **CLIENTS) as admin:
                    await call(admin)
                    return
            await asyncio.sleep(0.5)

    async def _create_acls(self, *users: str) -> None:
        bindings = [
            AclBinding(
                # Each grant differs, so that a broker that missed a change does not agree with the tree in the end.
                pattern=ResourcePattern(kind, name.format(grant=self._removals), PatternType.LITERAL),
                entry=AclEntry(principal=f"User:{user}", operation=operation),
            )
            for user, kind, name, operations in _RIGHTS
            for operation in operations
            if user in users
        ]
        await self._by_admin(lambda admin: admin.create_acls(bindings))

    async def _set_passwords(self, passwords: Mapping[str, str]) -> None:
        users = [UserScramCredentialUpsertion(user=u, mechanism=_SCRAM, password=p) for u, p in passwords.items()]
        await self._by_admin(lambda admin: admin.alter_user_scram_credentials(users))

    # ---- the other writer

    async def _feed(self) -> None:
        async with self.world.producer("other-writer", delivery_timeout_ms=3_000_000, **CLIENTS) as producer:
            while True:
                await (await producer.send(TOPIC, b"of another writer", partition=0))
                await asyncio.sleep(0.2)


def _settings(user: str, mechanism: str, password: str) -> dict[str, Any]:
    login = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}
    return {"security_protocol": "SASL_PLAINTEXT", **login}


def _acls_of(acls: Mapping[ResourcePattern, Sequence[AclEntry]], principal: str) -> list[AclEntry]:
    return [entry for entries in acls.values() for entry in entries if entry.principal == principal]
