"""Kafka's broker keys for mechanisms that this broker lacks.

In a file their values are validated, kept and described as in Kafka, without any other effect; a value that would
change the broker's behaviour is refused. At run time only their defaults are accepted. The table has every key of Kafka
4.4 that is neither a field of `BrokerConfig` nor in `replaced_keys.REPLACED_KEYS`; conformance/peers compares it with
Kafka.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from odradek.config.definition import ConfigType, Definition, Value, unknown_key
from odradek.model import ConfigurationError

_NO_MECHANISM: Final = "this broker has no such mechanism"

IGNORED_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "background.threads": "one event loop does this work",
        "controller.message.queue.size": "a request to a broker has the newest state, so none queue up",
        "inter.broker.protocol.version": "brokers agree on versions by themselves",
        "log.flush.start.offset.checkpoint.interval.ms": (
            "log start offsets are written down with the recovery points, by log.flush.offset.checkpoint.interval.ms"
        ),
        "log.message.format.version": "every log is of the newest format",
        "offsets.commit.required.acks": "all in-sync replicas have a commit before it is answered",
        "producer.id.expiration.check.interval.ms": "idle producers are removed at log.retention.check.interval.ms",
        "num.io.threads": "one event loop serves all requests of a broker; start more brokers to use more cores",
        "num.network.threads": "one event loop serves all connections of a broker",
        "transaction.state.log.load.buffer.size": "a coordinator reads its log in pieces of 1 MiB",
        "replica.lag.max.messages": "replica.lag.time.max.ms decides alone, as in later releases of Kafka",
        "zookeeper.sync.time.ms": "followers of ZooKeeper are not waited for",
        "queued.max.requests": "a request is served as it is read; queued.max.request.bytes bounds the unanswered ones",
    }
)
"""Common keys of a `server.properties` that have no effect here, with the reason that is logged as a warning."""

_TABLE: Final = """
alter.config.policy.class.name class null any read-only
background.threads int 10 1.. cluster-wide
broker.heartbeat.interval.ms int 2000 any read-only
broker.session.timeout.ms int 9000 any read-only
client.quota.callback.class class null any read-only
config.providers list "" any cluster-wide
controller.listener.names list "" any read-only
controller.quorum.append.linger.ms int 25 0.. read-only
controller.quorum.auto.join.enable boolean false any read-only
controller.quorum.bootstrap.servers list "" any read-only
controller.quorum.election.backoff.max.ms int 1000 0.. read-only
controller.quorum.election.timeout.ms int 1000 0.. read-only
controller.quorum.fetch.max.bytes int 1048576 1.. read-only
controller.quorum.fetch.snapshot.max.bytes int 1048576 1.. read-only
controller.quorum.fetch.timeout.ms int 2000 0.. read-only
controller.quorum.request.timeout.ms int 2000 0.. read-only
controller.quorum.retry.backoff.ms int 20 0.. read-only
controller.quorum.voters list "" any read-only
controller.socket.timeout.ms int 30000 any read-only
cordoned.log.dirs list "" any per-broker
create.topic.policy.class.name class null any read-only
delegation.token.expiry.check.interval.ms long 3600000 1.. read-only
delegation.token.expiry.time.ms long 86400000 1.. read-only
delegation.token.max.lifetime.ms long 604800000 1.. read-only
delegation.token.secret.key password null any read-only
delete.records.purgatory.purge.interval.requests int 1 any read-only
early.start.listeners list null any read-only
errors.deadletterqueue.auto.create.topics.enable boolean false any cluster-wide
errors.deadletterqueue.topic.name.prefix string dlq. any cluster-wide
fetch.purgatory.purge.interval.requests int 1000 any read-only
follower.fetch.last.tiered.offset.enable boolean false any cluster-wide
group.coordinator.append.linger.ms int -1 -1.. read-only
group.coordinator.background.threads int 2 1.. read-only
group.coordinator.cached.buffer.max.bytes int 1048588 1.. cluster-wide
group.coordinator.threads int 4 1.. read-only
group.share.assignment.interval.ms int 1000 0.. cluster-wide
group.share.assignors list simple any read-only
group.share.delivery.count.limit int 5 2..10 read-only
group.share.heartbeat.interval.ms int 5000 1.. read-only
group.share.max.assignment.interval.ms int 15000 1.. read-only
group.share.max.delivery.count.limit int 10 2.. read-only
group.share.max.heartbeat.interval.ms int 15000 1.. read-only
group.share.max.partition.max.record.locks int 4000 100.. read-only
group.share.max.record.lock.duration.ms int 60000 30000..3600000 read-only
group.share.max.session.timeout.ms int 60000 1.. read-only
group.share.max.share.sessions int 2000 1.. read-only
group.share.max.size int 200 1..1000 read-only
group.share.min.assignment.interval.ms int 0 0.. read-only
group.share.min.delivery.count.limit int 2 2.. read-only
group.share.min.heartbeat.interval.ms int 5000 1.. read-only
group.share.min.partition.max.record.locks int 100 100.. read-only
group.share.min.record.lock.duration.ms int 15000 1000..30000 read-only
group.share.min.session.timeout.ms int 45000 1.. read-only
group.share.partition.max.record.locks int 2000 100..10000 read-only
group.share.record.lock.duration.ms int 30000 1000..3600000 read-only
group.share.session.timeout.ms int 45000 1.. read-only
group.streams.assignment.interval.ms int 1000 0.. cluster-wide
group.streams.assignors list sticky any read-only
group.streams.heartbeat.interval.ms int 5000 1.. read-only
group.streams.initial.rebalance.delay.ms int 3000 0.. read-only
group.streams.max.assignment.interval.ms int 15000 1.. read-only
group.streams.max.heartbeat.interval.ms int 15000 1.. read-only
group.streams.max.session.timeout.ms int 60000 1.. read-only
group.streams.max.size int 2147483647 1.. read-only
group.streams.max.standby.replicas int 2 0.. read-only
group.streams.min.assignment.interval.ms int 0 0.. read-only
group.streams.min.heartbeat.interval.ms int 5000 1.. read-only
group.streams.min.session.timeout.ms int 45000 1.. read-only
group.streams.num.standby.replicas int 0 0.. read-only
group.streams.rack.aware.assignment.tags list "" any read-only
group.streams.session.timeout.ms int 45000 1.. read-only
group.streams.topology.description.plugin.class class null any read-only
initial.broker.registration.timeout.ms int 60000 any read-only
kafka.metrics.polling.interval.secs int 10 1.. read-only
kafka.metrics.reporters list "" any read-only
log.dir.failure.timeout.ms long 30000 1.. read-only
log.flush.start.offset.checkpoint.interval.ms int 60000 0.. read-only
max.request.partition.size.limit int 2000 1.. read-only
metadata.log.dir string null any read-only
metadata.log.max.record.bytes.between.snapshots long 20971520 1.. read-only
metadata.log.max.snapshot.interval.ms long 3600000 0.. read-only
metadata.log.segment.bytes int 1073741824 8388608.. read-only
metadata.log.segment.ms long 604800000 any read-only
metadata.max.idle.interval.ms int 500 0.. read-only
metadata.max.retention.bytes long 104857600 any read-only
metadata.max.retention.ms long 604800000 any read-only
metric.reporters list org.apache.kafka.common.metrics.JmxReporter any cluster-wide
metrics.num.samples int 2 1.. read-only
metrics.recording.level string INFO any read-only
metrics.sample.window.ms long 30000 1.. read-only
num.io.threads int 8 1.. cluster-wide
num.network.threads int 3 1.. cluster-wide
num.replica.alter.log.dirs.threads int null any read-only
offsets.load.buffer.size int 5242880 1.. read-only
offsets.topic.compression.codec int 0 any read-only
principal.builder.class class \
    org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder any per-broker
producer.purgatory.purge.interval.requests int 1000 any read-only
queued.max.requests int 500 1.. read-only
remote.fetch.max.wait.ms int 500 1.. cluster-wide
remote.list.offsets.request.timeout.ms long 30000 1.. cluster-wide
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. cluster-wide
remote.log.manager.copier.thread.pool.size int 10 1.. cluster-wide
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
remote.log.manager.copy.quota.window.num int 11 1.. read-only
remote.log.manager.copy.quota.window.size.seconds int 1 1.. read-only
remote.log.manager.expiration.thread.pool.size int 10 1.. cluster-wide
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
remote.log.manager.fetch.quota.window.num int 11 1.. read-only
remote.log.manager.fetch.quota.window.size.seconds int 1 1.. read-only
remote.log.manager.follower.thread.pool.size int 2 1.. cluster-wide
remote.log.manager.task.interval.ms long 30000 1.. read-only
remote.log.manager.thread.pool.size int 2 1.. read-only
remote.log.metadata.custom.metadata.max.bytes int 128 0.. read-only
remote.log.metadata.manager.class.name string \
    org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager any read-only
remote.log.metadata.manager.class.path string null any read-only
remote.log.metadata.manager.impl.prefix string rlmm.config. any read-only
remote.log.metadata.manager.listener.name string null any read-only
remote.log.reader.max.pending.tasks int 100 1.. read-only
remote.log.reader.threads int 10 1.. cluster-wide
remote.log.storage.manager.class.name string null any read-only
remote.log.storage.manager.class.path string null any read-only
remote.log.storage.manager.impl.prefix string rsm.config. any read-only
remote.log.storage.system.enable boolean false any read-only
replica.high.watermark.checkpoint.interval.ms long 5000 any read-only
replica.socket.receive.buffer.bytes int 65536 any read-only
replica.socket.timeout.ms int 30000 any read-only
request.timeout.ms int 30000 any read-only
sasl.client.callback.handler.class class null any read-only
sasl.kerberos.kinit.cmd string /usr/bin/kinit any per-broker
sasl.kerberos.min.time.before.relogin long 60000 any per-broker
sasl.kerberos.principal.to.local.rules list DEFAULT any per-broker
sasl.kerberos.service.name string null any per-broker
sasl.kerberos.ticket.renew.jitter double 0.05 any per-broker
sasl.kerberos.ticket.renew.window.factor double 0.8 any per-broker
sasl.login.callback.handler.class class null any read-only
sasl.login.class class null any read-only
sasl.login.connect.timeout.ms int null any read-only
sasl.login.read.timeout.ms int null any read-only
sasl.login.refresh.buffer.seconds short 300 any per-broker
sasl.login.refresh.min.period.seconds short 60 any per-broker
sasl.login.refresh.window.factor double 0.8 any per-broker
sasl.login.refresh.window.jitter double 0.05 any per-broker
sasl.login.retry.backoff.max.ms long 10000 any read-only
sasl.login.retry.backoff.ms long 100 any read-only
sasl.mechanism.controller.protocol string GSSAPI any read-only
sasl.oauthbearer.allow.unverified.audience boolean false any read-only
sasl.oauthbearer.allow.unverified.issuer boolean false any read-only
sasl.oauthbearer.assertion.algorithm string RS256 any read-only
sasl.oauthbearer.assertion.claim.aud string null any read-only
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400 read-only
sasl.oauthbearer.assertion.claim.iss string null any read-only
sasl.oauthbearer.assertion.claim.jti.include boolean false any read-only
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600 read-only
sasl.oauthbearer.assertion.claim.sub string null any read-only
sasl.oauthbearer.assertion.file string null any read-only
sasl.oauthbearer.assertion.private.key.file string null any read-only
sasl.oauthbearer.assertion.private.key.passphrase password null any read-only
sasl.oauthbearer.assertion.template.file string null any read-only
sasl.oauthbearer.client.credentials.client.id string null any read-only
sasl.oauthbearer.client.credentials.client.secret password null any read-only
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000 any read-only
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100 any read-only
sasl.oauthbearer.jwt.retriever.class class \
    org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever any read-only
sasl.oauthbearer.jwt.validator.class class \
    org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator any read-only
sasl.oauthbearer.scope string null any read-only
sasl.oauthbearer.token.endpoint.url string null any read-only
sasl.server.callback.handler.class class null any read-only
security.providers string null any read-only
share.coordinator.append.linger.ms int -1 -1.. read-only
share.coordinator.cached.buffer.max.bytes int 1048588 1.. cluster-wide
share.coordinator.load.buffer.size int 5242880 1.. read-only
share.coordinator.snapshot.update.records.per.snapshot int 500 0.. read-only
share.coordinator.state.topic.compression.codec int 0 any read-only
share.coordinator.state.topic.min.isr short 2 1.. read-only
share.coordinator.state.topic.num.partitions int 50 1.. read-only
share.coordinator.state.topic.replication.factor short 3 1.. read-only
share.coordinator.state.topic.segment.bytes int 104857600 1.. read-only
share.coordinator.threads int 1 1.. read-only
share.coordinator.write.timeout.ms int 5000 1.. read-only
share.fetch.purgatory.purge.interval.requests int 1000 any read-only
socket.connection.setup.timeout.max.ms long 30000 any read-only
socket.connection.setup.timeout.ms long 10000 any read-only
ssl.allow.dn.changes boolean false any read-only
ssl.allow.san.changes boolean false any read-only
ssl.cipher.suites list "" any per-broker
ssl.engine.factory.class class null any per-broker
ssl.keymanager.algorithm string SunX509 any per-broker
ssl.protocol string TLSv1.3 any per-broker
ssl.provider string null any per-broker
ssl.secure.random.implementation string null any per-broker
ssl.trustmanager.algorithm string PKIX any per-broker
telemetry.max.bytes int 1048576 1.. read-only
transaction.state.log.load.buffer.size int 5242880 1.. read-only
"""
"""Name, type, default, limits and update mode of each key; `""` means an empty text or list."""

_NO_TIERED_STORAGE: Final = "there is no tiered storage; leave it unset"
_NO_PLUGINS: Final = "classes for the JVM cannot be loaded; leave it unset"
_REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "alter.config.policy.class.name": _NO_PLUGINS,
        "client.quota.callback.class": _NO_PLUGINS,
        "config.providers": _NO_PLUGINS,
        "cordoned.log.dirs": "every directory takes new partitions; leave it unset",
        "create.topic.policy.class.name": _NO_PLUGINS,
        "delegation.token.secret.key": "there are no delegation tokens; leave it unset",
        "early.start.listeners": "all listeners open together; leave it unset",
        "kafka.metrics.reporters": _NO_PLUGINS,
        "metric.reporters": _NO_PLUGINS,
        "principal.builder.class": _NO_PLUGINS,
        "remote.log.storage.system.enable": _NO_TIERED_STORAGE,
        "sasl.login.class": _NO_PLUGINS,
        "security.providers": _NO_PLUGINS,
        "ssl.cipher.suites": "the suites are those of OpenSSL's configuration; leave it unset",
        "ssl.engine.factory.class": _NO_PLUGINS,
    }
)
"""Keys that support only their default, and what to do instead."""
_LISTENER_PREFIX: Final = "listener.name."
"""The prefix of keys for one listener."""


class UnimplementedKey(Struct, frozen=True, kw_only=True):
    """One key. `mode`: read-only, per-broker or cluster-wide, as in Kafka's documentation."""

    definition: Definition
    mode: str


@cache
def unimplemented_keys() -> Mapping[str, UnimplementedKey]:
    return MappingProxyType({key.definition.name: key for key in map(_key, _TABLE.strip().split("\n"))})


def divided(properties: Mapping[str, str], known: Mapping[str, Definition]) -> tuple[dict[str, str], dict[str, str]]:
    """Split `properties` into the keys that are in `known`, and all others."""
    meant = {name: text for name, text in properties.items() if name in known}
    return meant, {name: text for name, text in properties.items() if name not in known}


def check_static(properties: Mapping[str, str], known: Iterable[str]) -> None:
    """Raise `ConfigurationError` for keys that Kafka does not have, and for invalid or unsupported values."""
    keys = unimplemented_keys() if properties else {}
    for name, text in properties.items():
        if name in keys:
            keys[name].definition.parse(text)
        elif name not in IGNORED_KEYS:
            raise unknown_key(name, [*known, *keys])


def check_dynamic(name: str, text: str, known: Iterable[str], *, for_all: bool) -> None:
    """Raise `ConfigurationError` for a key that is not in `known`, unless `text` is its default.

    The client would not learn that the key has no effect. `for_all`: set for all brokers at once.
    """
    if name.startswith(_LISTENER_PREFIX):
        raise ConfigurationError(
            f"{name} cannot be changed while the broker runs; set it in its file and start it again"
        )
    key = unimplemented_keys().get(name)
    if key is not None:
        if key.mode == "read-only":
            raise ConfigurationError(f"{name} cannot be changed while the broker runs, and has no effect in its file")
        if key.mode == "per-broker" and for_all:
            raise ConfigurationError(f"{name} cannot be set for all brokers at once; set it for each broker")
        if key.definition.parse(text) == key.definition.default:
            return
    elif name not in IGNORED_KEYS:
        raise unknown_key(name, [*known, *unimplemented_keys()])
    raise ConfigurationError(f"{name} has no effect: {IGNORED_KEYS.get(name, _NO_MECHANISM)}; leave it unset")


def why_ignored(name: str, text: str) -> str | None:
    """Return why a key that is not a field of `BrokerConfig` has no effect; None if `text` is its default."""
    if name in IGNORED_KEYS:
        return IGNORED_KEYS[name]
    definition = unimplemented_keys()[name].definition
    is_default = definition.parse(text) == definition.default
    return None if is_default else _NO_MECHANISM


def _key(line: str) -> UnimplementedKey:
    name, kind, default_text, limits, mode = line.split()
    bounds = re.fullmatch(r"(-?\d+)\.\.(-?\d*)", limits)
    bare = Definition(
        name=name,
        type=ConfigType[kind.upper()],
        default=None,
        doc="No effect: this broker has no such mechanism.",
        minimum=None if bounds is None else int(bounds[1]),
        maximum=int(bounds[2]) if bounds is not None and bounds[2] else None,
        choices=() if bounds is not None or limits == "any" else tuple(limits.split("|")),
        nullable=default_text == "null",
    )
    default = None if bare.nullable else bare.parse("" if default_text == '""' else default_text)
    return UnimplementedKey(definition=_with_default(bare, default), mode=mode)


def _with_default(bare: Definition, default: Value) -> Definition:
    reason = _REFUSED.get(bare.name, "")
    honoured: tuple[Value, ...] = (default, ()) if bare.type is ConfigType.LIST else (default,)
    return replace(bare, default=default, honoured=honoured if reason else (), reason=reason)
