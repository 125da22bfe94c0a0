"""The broker's keys of listeners and connections; `broker` has the table of deliberate deviations."""

from dataclasses import dataclass

from odradek.config.definition import INT_MAX, boolean, integer, long, names, text
from odradek.config.security import MECHANISMS, PROTOCOLS, ListenerSecurity

AUTHORIZERS = (
    "",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig(ListenerSecurity):
    """The keys of a broker's listeners, connections and authorizer."""

    listeners: tuple[str, ...] = names(
        "listeners", ("PLAINTEXT://localhost:9092",), "Listening addresses, NAME://HOST:PORT; port 0: any free one."
    )
    advertised_listeners: tuple[str, ...] | None = names(
        "advertised.listeners", None, "Addresses that clients connect to; the listeners if unset.", nullable=True
    )
    listener_security_protocol_map: tuple[str, ...] = names(
        "listener.security.protocol.map",
        tuple(f"{each}:{each}" for each in PROTOCOLS),
        "The security protocol of each listener name, as NAME:PROTOCOL,….",
    )
    inter_broker_listener_name: str | None = text(
        "inter.broker.listener.name", None, "The listener that brokers use for each other.", nullable=True
    )
    security_inter_broker_protocol: str = text(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "The protocol of the listener that brokers use, unless inter.broker.listener.name names it.",
        choices=PROTOCOLS,
    )
    sasl_mechanism_inter_broker_protocol: str = text(
        "sasl.mechanism.inter.broker.protocol",
        "PLAIN",
        "The mechanism by which brokers authenticate.",
        choices=MECHANISMS,
    )
    connection_failed_authentication_delay_ms: int = integer(
        "connection.failed.authentication.delay.ms",
        100,
        "How long the response to a failed authentication is delayed.",
        minimum=0,
    )
    authorizer_class_name: str = text(
        "authorizer.class.name",
        "",
        "The authorizer: either name of Kafka's is the one by ACLs in the metadata tree; empty: everything is allowed.",
        choices=AUTHORIZERS,
    )
    super_users: str = text("super.users", "", "Principals that may do everything, separated by semicolons.")
    allow_everyone_if_no_acl_found: bool = boolean(
        "allow.everyone.if.no.acl.found", False, "Whether everyone may use a resource that no ACL is for."
    )
    socket_request_max_bytes: int = integer(
        "socket.request.max.bytes", 104_857_600, "The largest request; a larger one closes its connection.", minimum=1
    )
    queued_max_request_bytes: int = long(
        "queued.max.request.bytes",
        268_435_456,
        "Bytes of requests being worked on before connections are no longer read; -1 is no limit.",
        minimum=-1,
    )
    connections_max_idle_ms: int = long(
        "connections.max.idle.ms", 600_000, "An idle connection is closed after this time; -1: never.", minimum=-1
    )
    max_connections: int = integer("max.connections", INT_MAX, "Connections at once; more are closed.", minimum=0)
    max_connections_per_ip: int = integer(
        "max.connections.per.ip", INT_MAX, "Connections at once from one address; more are closed.", minimum=0
    )
    max_connections_per_ip_overrides: str = text(
        "max.connections.per.ip.overrides", "", "Limits for single addresses, as ADDRESS:NUMBER,…."
    )
    max_connection_creation_rate: int = integer(
        "max.connection.creation.rate",
        INT_MAX,
        "New connections per second; more are delayed, and closed if that would take more than 5 seconds.",
        minimum=1,
    )
    quota_window_num: int = integer(
        "quota.window.num", 11, "Samples over which the rates of clients and IP addresses are measured.", minimum=1
    )
    quota_window_size_seconds: int = integer(
        "quota.window.size.seconds", 1, "The length of a sample of such a rate.", minimum=1
    )
    controller_quota_window_num: int = integer(
        "controller.quota.window.num", 11, "Samples whose whole time allows a burst of topic mutations.", minimum=1
    )
    controller_quota_window_size_seconds: int = integer(
        "controller.quota.window.size.seconds", 1, "The length of a sample for topic mutations.", minimum=1
    )
    socket_listen_backlog_size: int = integer(
        "socket.listen.backlog.size", 1024, "New connections that the kernel queues until they are accepted.", minimum=1
    )
    socket_send_buffer_bytes: int = integer(
        "socket.send.buffer.bytes", -1, "A connection's send buffer in the kernel; -1: sized by the kernel.", minimum=-1
    )
    socket_receive_buffer_bytes: int = integer(
        "socket.receive.buffer.bytes",
        -1,
        "A connection's receive buffer in the kernel; -1: sized by the kernel.",
        minimum=-1,
    )
