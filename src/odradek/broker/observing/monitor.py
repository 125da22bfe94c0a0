"""The broker's HTTP endpoint for Prometheus and for probes, on its own port.

```
/metrics   all metrics (docs/metrics.md)
/healthz   200 while the process responds; lists full disks, against which a restart does not help
/readyz    200 while clients are served, else 503 and the reason
```
It opens before the broker starts, so that the broker is healthy, but not ready, during a long recovery.
"""

import asyncio
import logging
from http import HTTPStatus

from odradek.broker.interfaces import BrokerParts, Phase
from odradek.broker.observing.exposition import load, render
from odradek.broker.observing.http import Answer, HttpService
from odradek.broker.observing.observation import steps
from odradek.model import address_text
from odradek.runtime import Listener
from odradek.runtime.listening import listening_error

_log = logging.getLogger("odradek.broker")
_NOT_READY = HTTPStatus.SERVICE_UNAVAILABLE


class Monitor:
    """The endpoint of one broker. Create it before the broker starts; requests are measured from then on."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        self._service = HttpService(self._respond)
        self._listener: Listener | None = None
        broker.server.measure_requests()

    @property
    def port(self) -> int:
        assert self._listener is not None, "the monitor is not open"
        return self._listener.port

    async def open(self, host: str, port: int) -> None:
        """Listen on `port` (0: any free one). Raise `ConfigurationError` if it is not available."""
        load()
        try:
            self._listener = await self._broker.runtime.network.listen(self._service.connection, host, port)
        except OSError as error:
            raise listening_error(host, port, error, " for metrics") from None
        _log.info("metrics at http://%s/metrics", address_text(host, self.port))

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._service.close()

    async def _respond(self, path: str, accept: str) -> Answer:
        if path == "/metrics":
            # The numbers are read on the event loop, where they change, with other tasks in between: 10,000 partitions
            # take 0.2 s. Formatting takes as long, in a thread.
            families = []
            for family in steps(self._broker):
                if family is not None:
                    families.append(family)
                await asyncio.sleep(0)
            content_type, page = await asyncio.to_thread(render, families, accept)
            return Answer(content_type=content_type, body=page)
        if path == "/healthz":
            lines = ["ok", *self._broker.partitions.write_scheduler.full_disks.sentences()]
            return Answer(body="".join(f"{line}\n" for line in lines).encode())
        if path == "/readyz":
            reason = self._unreadiness()
            return Answer(body=b"ready\n") if reason is None else Answer(status=_NOT_READY, body=f"{reason}\n".encode())
        if path == "/":
            return Answer(body=b"/metrics\n/healthz\n/readyz\n")
        return Answer(status=HTTPStatus.NOT_FOUND, body=b"there are /metrics, /healthz and /readyz\n")

    def _unreadiness(self) -> str | None:
        broker = self._broker
        if broker.phase is not Phase.RUNNING:
            return f"the broker is {broker.phase.name.lower()}"
        if broker.config.broker_id not in broker.image.brokers:
            return "the broker is not in the cluster: its session with the metadata is lost"
        if broker.fence.is_closed:
            return "the broker leads nothing: its session with the metadata may be over"
        return None
