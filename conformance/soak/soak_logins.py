"""The latency of a producer's sends, first alone and then beside logins that fail.

    python conformance/soak/soak_logins.py [SECONDS [CONNECTIONS [KEY=VALUE …]]]

One process keeps CONNECTIONS connections open, and each sends a wrong password. KEY=VALUE is broker configuration.
"""

import asyncio
import contextlib
import multiprocessing
import select
import socket
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

from odradek.clients import Producer
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import encode_request_header
from odradek.runtime import SystemClock
from odradek.simulation.wire_client import frame
from odradek.testing.servers.odradek_process import ServedBroker

_OPTIONS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";'
    ),
}
_CLOCK: Final = SystemClock()
_PAUSE_S: Final = 0.002
_TOKEN: Final = b"\0a\0wrong"
_LOGIN: Final = frame(encode_request_header(ApiKey.SASL_HANDSHAKE, 1, 1, "c") + b"\0\5PLAIN") + frame(
    encode_request_header(ApiKey.SASL_AUTHENTICATE, 1, 2, "c") + len(_TOKEN).to_bytes(4, "big") + _TOKEN
)


def _flood(port: int, seconds: float, connections: int, refused: "multiprocessing.Queue[int]") -> None:
    """Log in with a wrong password, again and again; count the refusals."""
    poll, clients, count = select.epoll(), dict[int, socket.socket](), 0
    end = _CLOCK.monotonic() + seconds
    while _CLOCK.monotonic() < end:
        while len(clients) < connections:
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
            clients[client.fileno()] = client
            poll.register(client, select.EPOLLOUT)
        for number, event in poll.poll(0.05):
            client = clients[number]
            try:
                if event == select.EPOLLOUT:
                    client.send(_LOGIN)
                    poll.modify(client, select.EPOLLIN)
                    continue
                if answer := client.recv(4096):
                    count += b"invalid credentials" in answer
                    continue
            except OSError:
                pass
            poll.unregister(number)
            clients.pop(number).close()
    refused.put(count)


async def _latencies_ms(servers: str, seconds: float) -> list[float]:
    """Send records one by one; return percentiles."""
    took, pause = [], asyncio.Event()
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
    async with Producer(servers, security_protocol="SASL_PLAINTEXT", linger_ms=0, **login) as producer:  # type: ignore[arg-type]
        await (await producer.send("t", b"first"))
        end = _CLOCK.monotonic() + seconds
        while (began := _CLOCK.monotonic()) < end:
            await (await producer.send("t", bytes(100)))
            took.append((_CLOCK.monotonic() - began) * 1000)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pause.wait(), _PAUSE_S)
    return statistics.quantiles(took, n=100)


def main(seconds: float, connections: int, *keys: str) -> None:
    """Measure one round."""
    options = _OPTIONS | dict(key.split("=", 1) for key in keys)
    with tempfile.TemporaryDirectory() as folder, ServedBroker(Path(folder) / "data", options=options) as broker:
        servers = broker.bootstrap_servers
        alone = asyncio.run(_latencies_ms(servers, seconds))
        refused: multiprocessing.Queue[int] = multiprocessing.Queue()
        arguments = int(servers.rpartition(":")[2]), seconds, connections, refused
        flood = multiprocessing.Process(target=_flood, args=arguments)
        flood.start()
        beside = asyncio.run(_latencies_ms(servers, seconds))
        rate = refused.get(timeout=60) / seconds
        flood.join()
    for name, each in ("alone", alone), (f"beside {rate:.0f} failing logins/s", beside):
        print(f"{name}: p50 {each[49]:.1f} ms, p99 {each[98]:.1f} ms")


if __name__ == "__main__":
    main(float((sys.argv[1:] or ["10"])[0]), int((sys.argv[2:] or ["450"])[0]), *sys.argv[3:])
