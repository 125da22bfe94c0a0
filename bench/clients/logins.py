"""Workloads of security: connections that log in one after another, and the creation of ACLs."""

import socket
import ssl
import struct
import threading
import time
from typing import Final

from bench.clients.librdkafka import settings_of
from bench.clients.workloads import Figures
from odradek.protocol.api import ApiKey

_THREADS: Final = 4
_ACLS_AT_ONCE: Final = 1000
_TIMEOUT_S: Final = 30.0


def logins(bootstrap_servers: str, *, seconds: float) -> Figures:
    """Connect again and again in four threads, by TLS and SASL PLAIN if set; return connections per second."""
    settings = settings_of(bootstrap_servers)
    protocol = str(settings.get("security.protocol", "PLAINTEXT"))
    context = ssl.create_default_context(cafile=str(settings["ssl.ca.location"])) if "SSL" in protocol else None
    requests = [_request(ApiKey.API_VERSIONS, 0, b"")]
    if "SASL" in protocol:
        token = f"\0{settings['sasl.username']}\0{settings['sasl.password']}".encode()
        requests.append(_request(ApiKey.SASL_HANDSHAKE, 1, struct.pack(">h5s", 5, b"PLAIN")))
        requests.append(_request(ApiKey.SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token))
    host, _, port = bootstrap_servers.rpartition(":")
    counts = [0] * _THREADS
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < until:
            _connect((host, int(port)), context, requests)
            counts[number] += 1

    started = time.perf_counter()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    count = sum(counts)
    return {"connections": float(count), "connections_per_second": count / (time.perf_counter() - started)}


def _request(api_key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">ihhih", 10 + len(body), api_key, version, 1, -1) + body


def _connect(address: tuple[str, int], context: ssl.SSLContext | None, requests: list[bytes]) -> None:
    with socket.create_connection(address, timeout=_TIMEOUT_S) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = plain if context is None else context.wrap_socket(plain, server_hostname=address[0])
        with connection, connection.makefile("rb") as answers:
            answer = b""
            for request in requests:
                connection.sendall(request)
                answer = answers.read(struct.unpack(">i", answers.read(4))[0])
            assert not struct.unpack_from(">h", answer, 4)[0], "the client could not log in"


def create_acls(bootstrap_servers: str, *, user: str, others: int) -> Figures:
    """Allow `user` everything on topics and groups `bench*`; create `others` more ACLs, of other topics and users."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    def acl(kind: ResourceType, name: str, principal: str, pattern: ResourcePatternType) -> AclBinding:
        return AclBinding(kind, name, pattern, f"User:{principal}", "*", AclOperation.ALL, AclPermissionType.ALLOW)

    wanted = [
        acl(kind, "bench", user, ResourcePatternType.PREFIXED) for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    for number in range(others):
        pattern = ResourcePatternType.PREFIXED if number % 10 == 0 else ResourcePatternType.LITERAL
        wanted.append(acl(ResourceType.TOPIC, f"topic-{number}", f"user-{number % 100}", pattern))
    admin = AdminClient(settings_of(bootstrap_servers))
    for start in range(0, len(wanted), _ACLS_AT_ONCE):
        created = admin.create_acls(wanted[start : start + _ACLS_AT_ONCE], request_timeout=_TIMEOUT_S * 4)
        for future in created.values():
            future.result()
    return {}
