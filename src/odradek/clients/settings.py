"""Settings of all clients: Kafka's keys, with `_` for `.`, from keyword arguments or a properties file.

Each key is a field of a frozen dataclass, declared as in `odradek.config`. The producer's and consumer's own keys are
in their packages.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from odradek.config.definition import (
    ConfigType,
    Definition,
    boolean,
    definitions,
    imported,
    integer,
    names,
    password,
    text,
    unknown_key,
)
from odradek.config.security import MECHANISMS, PROTOCOLS, ConnectionSecurity
from odradek.model import ConfigurationError, bootstrap_addresses
from odradek.model.suggestions import similar_names

_DEFAULTS = "Python's and OpenSSL's defaults are used"
_METRICS = "metrics are totals since the start"
ABSENT_KEYS: Final = {
    "auto.include.jmx.reporter": _METRICS,
    "client.dns.lookup": "all addresses of a name are tried",
    "connections.max.idle.ms": "connections stay open until the client or the broker closes them",
    "enable.metrics.push": "metrics are not sent to brokers",
    "metadata.recovery.rebootstrap.trigger.ms": "clients ask the bootstrap servers whenever no broker answers",
    "metadata.recovery.strategy": "clients ask the bootstrap servers whenever no broker answers",
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "receive.buffer.bytes": "the operating system sizes the buffers of sockets",
    "send.buffer.bytes": "the operating system sizes the buffers of sockets",
    "sasl.kerberos.service.name": "Kerberos (GSSAPI) is not supported: use SCRAM-SHA-512 or OAUTHBEARER",
    "sasl.login.callback.handler.class": "use sasl.oauthbearer.token.provider, a Python function",
    "sasl.mechanisms": "use sasl.mechanism",
    "security.providers": _DEFAULTS,
    "ssl.ca.location": "use ssl.truststore.location",
    "ssl.ca.pem": "use ssl.truststore.certificates",
    "ssl.certificate.location": "use ssl.keystore.location, a PEM file with the key and the certificates",
    "ssl.certificate.pem": "use ssl.keystore.certificate.chain",
    "ssl.cipher.suites": _DEFAULTS,
    "ssl.key.location": "use ssl.keystore.location, a PEM file with the key and the certificates",
    "ssl.key.pem": "use ssl.keystore.key",
    "ssl.protocol": "use ssl.enabled.protocols",
    "socket.connection.setup.timeout.max.ms": "every attempt may take socket.connection.setup.timeout.ms",
    # Of Kafka 0.8; a ZookeeperConsumer has some of them.
    "consumer.id": "use client.id, or group.instance.id; only a ZookeeperConsumer has it",
    "consumer.timeout.ms": "use the timeout of poll; only a ZookeeperConsumer has it",
    **dict.fromkeys(("offsets.storage", "dual.commit.enabled"), "only a ZookeeperConsumer keeps offsets in the tree"),
    "producer.type": "send is asynchronous; await what it returns for sync",
    **dict.fromkeys(("rebalance.backoff.ms", "rebalance.max.retries"), "only a ZookeeperConsumer rebalances by itself"),
    **dict.fromkeys(("serializer.class", "key.serializer.class"), "pass functions as Producer(key_serializer=...)"),
    "zookeeper.connect": "use bootstrap.servers; ZookeeperConsumer and `odradek consume --zookeeper` read the tree",
}
"""Keys of Kafka and librdkafka that no client has → the reason."""
_RENAMED: Final = """
auto.commit.enable enable.auto.commit           autooffset.reset auto.offset.reset
batch.num.messages batch.size                   broker.list bootstrap.servers
compression.codec compression.type              fetch.message.max.bytes max.partition.fetch.bytes
fetch.wait.max.ms fetch.max.wait.ms             groupid group.id
message.send.max.retries retries                metadata.broker.list bootstrap.servers
offsets.channel.backoff.ms retry.backoff.ms     offsets.channel.socket.timeout.ms request.timeout.ms
queue.buffering.max.messages buffer.memory      queue.buffering.max.ms linger.ms
queue.enqueue.timeout.ms max.block.ms           refresh.leader.backoff.ms retry.backoff.ms
request.required.acks acks                      socket.timeout.ms request.timeout.ms
zookeeper.session.timeout.ms session.timeout.ms zookeeper.connection.timeout.ms socket.connection.setup.timeout.ms
"""
RENAMED: Final = dict(zip(_RENAMED.split()[::2], _RENAMED.split()[1::2], strict=True))
"""Keys of Kafka 0.7 and 0.8 → their names since."""
ABSENT_KEYS.update({old: f"use {new}" for old, new in RENAMED.items()})
_GONE: Final = """compressed.topics num.consumer.fetchers offsets.commit.max.retries queued.max.message.chunks
socket.receive.buffer.bytes zookeeper.sync.time.ms"""
ABSENT_KEYS.update(dict.fromkeys(_GONE.split(), "a key of Kafka 0.8 that has no successor: leave it out"))

_SECURITY: Final = ("sasl.", "security.", "ssl.")
_URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
"""The only key of Kafka's clients for TLS and SASL that neither these nor brokers have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(ConnectionSecurity):
    """The configuration keys of all clients."""

    bootstrap_servers: tuple[str, ...] = names(
        "bootstrap.servers",
        ("localhost:9092",),
        "HOST:PORT of brokers to ask first; one that answers is enough.",
        kafka="no default",
    )
    client_id: str = text(
        "client.id", "odradek", "The name that brokers write into their logs.", kafka="empty by default"
    )
    security_protocol: str = text("security.protocol", "PLAINTEXT", "How connections are secured.", choices=PROTOCOLS)
    sasl_mechanism: str | None = text(
        "sasl.mechanism",
        None,
        "The SASL mechanism; the login module's if that is for one only.",
        choices=MECHANISMS,
        nullable=True,
        kafka="GSSAPI by default, which is not supported here",
    )
    sasl_username: str | None = text(
        "sasl.username", None, "The user name for PLAIN and SCRAM.", nullable=True, kafka="a key of librdkafka"
    )
    sasl_password: str | None = password(
        "sasl.password", "The password for PLAIN and SCRAM.", kafka="a key of librdkafka"
    )
    sasl_oauthbearer_token_provider: str | Callable[[], object] | None = imported(
        "sasl.oauthbearer.token.provider",
        "For OAUTHBEARER: a function that returns a token or an awaitable of one, or its import path MODULE:NAME.",
        kafka="sasl.login.callback.handler.class",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = text(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        "For OAUTHBEARER: the URL of the token endpoint (client credentials), or file:///PATH of a token.",
        nullable=True,
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = text(
        "sasl.oauthbearer.client.credentials.client.id", None, "The client id at the token endpoint.", nullable=True
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = password(
        "sasl.oauthbearer.client.credentials.client.secret", "The client secret at the token endpoint."
    )
    sasl_oauthbearer_scope: str | None = text(
        "sasl.oauthbearer.scope", None, "The scope to request from the token endpoint.", nullable=True
    )
    request_timeout_ms: int = integer(
        "request.timeout.ms",
        30_000,
        "How long a broker may take to answer before its connection is closed.",
        minimum=1,
    )
    socket_connection_setup_timeout_ms: int = integer(
        "socket.connection.setup.timeout.ms", 10_000, "How long connecting may take.", minimum=1
    )
    reconnect_backoff_ms: int = integer(
        "reconnect.backoff.ms", 50, "The first pause before a broker is connected to again; it doubles.", minimum=0
    )
    reconnect_backoff_max_ms: int = integer(
        "reconnect.backoff.max.ms", 1_000, "The longest pause before a broker is connected to again.", minimum=0
    )
    retry_backoff_ms: int = integer(
        "retry.backoff.ms", 100, "The first pause before a failed request is sent again; it doubles.", minimum=0
    )
    retry_backoff_max_ms: int = integer(
        "retry.backoff.max.ms", 1_000, "The longest pause before a failed request is sent again.", minimum=0
    )
    metadata_max_age_ms: int = integer(
        "metadata.max.age.ms", 300_000, "The age at which metadata is refreshed without an error.", minimum=1
    )
    default_api_timeout_ms: int = integer(
        "default.api.timeout.ms",
        60_000,
        "How long calls without a timeout of their own are retried.",
        minimum=1,
        kafka="not a key of the producer",
    )
    receive_message_max_bytes: int = integer(
        "receive.message.max.bytes", 256 << 20, "The largest response that is accepted.",
        minimum=1024, kafka="a key of librdkafka",
    )  # fmt: skip

    @classmethod
    def absent_keys(cls) -> Mapping[str, str]:
        """Return Kafka's keys that this client lacks, each with the reason or a replacement."""
        return ABSENT_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings(ClientSettings):
    """The configuration keys of clients that fetch records, in addition to those of `ClientSettings`."""

    fetch_min_bytes: int = integer(
        "fetch.min.bytes", 1, "The bytes that a broker collects before it answers.", minimum=0
    )
    fetch_max_bytes: int = integer("fetch.max.bytes", 50 << 20, "The maximum of bytes of one fetch.", minimum=1)
    fetch_max_wait_ms: int = integer(
        "fetch.max.wait.ms", 500, "How long a broker waits for fetch.min.bytes.", minimum=0
    )
    max_partition_fetch_bytes: int = integer(
        "max.partition.fetch.bytes", 1 << 20, "The maximum of bytes of one partition in a fetch.", minimum=1
    )
    isolation_level: str = text(
        "isolation.level",
        "read_uncommitted",
        "Whether records of open and aborted transactions are read.",
        choices=("read_uncommitted", "read_committed"),
    )
    check_crcs: bool = boolean("check.crcs", True, "Whether checksums are verified.")


S = TypeVar("S", bound=ClientSettings)


def make_settings(cls: type[S], values: Mapping[str, object]) -> S:
    """Create settings of class `cls` from keyword arguments; strings are parsed as in a properties file.

    Raises `ConfigurationError` for an unknown key (suggesting similar ones) and for an invalid value.
    """
    known = {definition.attribute: definition for definition in definitions(cls).values()}
    made: dict[str, Any] = {}
    for key, value in values.items():
        definition = known.get(key)
        if definition is None:
            raise _no_such_key(key, known, (cls,))
        made[key] = _value(definition, value)
    settings = cls(**made)
    return replace(settings, bootstrap_servers=bootstrap_addresses(settings.bootstrap_servers))


def settings_of_properties(
    properties: Mapping[str, str], *classes: type[ClientSettings], ignored: Callable[[str], object] | None = None
) -> dict[str, str]:
    """Return the keyword arguments for the first of `classes` from properties, which may have keys of all `classes`.

    Raises `ConfigurationError` for a key that no class has, so that a typo does not silently select the default. In a
    file for Kafka's tools, which may have any keys, it calls `ignored` with the reason instead (`why_ignored`).
    """
    everything = {name for cls in classes for name in definitions(cls)}
    for name in properties:
        if name not in everything:
            if ignored is None:
                raise _no_such_key(name, everything, classes)
            ignored(why_ignored(name, everything, classes))
    own = definitions(classes[0])
    return {own[name].attribute: own[name].spelled(value) for name, value in properties.items() if name in own}


def why_ignored(key: str, known: Iterable[str], classes: tuple[type[ClientSettings], ...]) -> str:
    """Return why a key that is not `known` has no effect.

    Raises `ConfigurationError` for a key that looks like one of TLS or SASL and that Kafka does not have: its author
    expects protection.
    """
    # Slow to import, and only a file of tools or an option that is no client's has such keys.
    from odradek.config.broker import BrokerConfig
    from odradek.config.unimplemented_keys import unimplemented_keys

    error = _no_such_key(key, known, classes)
    if key not in BrokerConfig.definitions() and key not in unimplemented_keys() and key != _URLENCODE:
        meant = [each for each in similar_names(key, known, cutoff=0.85) if not key.endswith(f".{each}")]
        if any(each.startswith(_SECURITY) for each in (_dotted(key), *meant)):
            raise error
    return str(error)


def _dotted(key: str) -> str:
    return key.replace("_", ".").lower()


def _no_such_key(key: str, known: Iterable[str], classes: tuple[type[ClientSettings], ...]) -> ConfigurationError:
    """Return the error for a key that no class has: the reason in `absent_keys`, or similar keys."""
    name = _dotted(key)
    reasons = [reason for cls in classes if (reason := cls.absent_keys().get(name))]
    return ConfigurationError(f"{key} is not supported here: {reasons[0]}") if reasons else unknown_key(key, known)


def _value(definition: Definition, value: object) -> Any:
    """Return `value` converted to the field's type. Raises `ConfigurationError` for an invalid value."""
    if isinstance(value, str):
        return definition.parse(value)
    if definition.type is ConfigType.CLASS and callable(value):
        return value
    if definition.type is ConfigType.STRING and isinstance(value, int) and not isinstance(value, bool):
        # acks=1 is commonly given as an integer.
        return definition.parse(str(value))
    if definition.type is ConfigType.LIST and isinstance(value, list | tuple):
        value = tuple(str(item) for item in value)
    fits = {
        ConfigType.BOOLEAN: isinstance(value, bool),
        ConfigType.STRING: value is None,
        ConfigType.PASSWORD: value is None,
        ConfigType.CLASS: value is None,
        ConfigType.LIST: value is None or isinstance(value, tuple),
        ConfigType.DOUBLE: isinstance(value, int | float) and not isinstance(value, bool),
    }.get(definition.type, isinstance(value, int) and not isinstance(value, bool))
    if not fits and value is not None:
        raise ConfigurationError(
            f"{definition.attribute} can't be {value!r}: it is of type {definition.type.name.lower()}"
        )
    definition.check(value)  # type: ignore[arg-type]
    return value
