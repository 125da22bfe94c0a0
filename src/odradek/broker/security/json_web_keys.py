"""The keys that sign bearer tokens: a JWKS at a URL, read at the start and again in the background."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from odradek.config.definition import definitions, parse_all
from odradek.config.listener_settings import ListenerSettings
from odradek.config.security import ConnectionSecurity
from odradek.model import ConfigurationError, PreconditionError, SecurityProtocol
from odradek.runtime import Runtime
from odradek.runtime.http import HttpError, fetch
from odradek.security.sasl.jaas import parse_jaas
from odradek.security.sasl.json_web_tokens import JsonWebKey, parse_key_set
from odradek.wire.client_security import client_tls

_log = logging.getLogger("odradek.broker")
_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 10.0
"""The time between two readings of which the second is for an unknown key, or after a failure."""


class JsonWebKeys:
    """The keys at the URL of a listener. When reading them again fails, the last ones stay.

    For `https`, options `ssl.*` of the listener's `sasl.jaas.config` for OAUTHBEARER hold, as in Kafka. Raises
    `ConfigurationError` for an invalid URL. There are no keys before `open`.
    """

    def __init__(self, settings: ListenerSettings, runtime: Runtime) -> None:
        keys = settings.security
        url = keys.sasl_oauthbearer_jwks_endpoint_url or ""
        if url.partition(":")[0] not in {"https", "http", "file"}:
            raise ConfigurationError(
                f"OAUTHBEARER on the listener {settings.name} needs keys that sign tokens: set "
                f"sasl.oauthbearer.jwks.endpoint.url to a URL with https, http or file, not {url!r}"
            )
        options = parse_jaas(settings.logins["OAUTHBEARER"]).options if "OAUTHBEARER" in settings.logins else {}
        own = {name: text for name, text in options.items() if name.startswith("ssl.")}
        tls = ConnectionSecurity(**parse_all(definitions(ConnectionSecurity), own))  # type: ignore[arg-type]
        self._url = url
        self._tls = client_tls(SecurityProtocol.SSL, tls) if url.startswith("https:") else None
        self._runtime = runtime
        self._refresh_s = max(keys.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000, 1.0)
        self._listener = settings.name
        self._keys: list[JsonWebKey] = []
        self._read_s = 0.0
        self._reading: asyncio.Future[list[JsonWebKey]] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Read the keys for the first time; raise `PreconditionError` if that fails, as Kafka does."""
        try:
            self._keys = await self._runtime.disk.submit(self._read, background=True)
        except (HttpError, ValueError) as error:
            raise PreconditionError(
                f"OAUTHBEARER on the listener {self._listener}: can't read the keys at {self._url}: {error}"
            ) from None
        self._read_s = self._runtime.clock.monotonic()
        self._restart_timer(self._refresh_s)

    def find(self, kid: str | None) -> Sequence[JsonWebKey]:
        """Return the keys with this id, all of them for None. For an unknown id, read the keys again in background."""
        found = [each for each in self._keys if kid is None or each.get("kid") == kid]
        if not found and self._runtime.clock.monotonic() - self._read_s >= _PAUSE_S:
            self.refresh()
        return found

    def refresh(self) -> None:
        """Begin to read the keys again, unless that is going on."""
        if self._reading is None:
            self._stop_timer()
            self._reading = self._runtime.disk.submit(self._read, background=True)
            self._reading.add_done_callback(self._finish)

    def close(self) -> None:
        self._stop_timer()
        if self._reading is not None:
            self._reading.remove_done_callback(self._finish)

    def _read(self) -> list[JsonWebKey]:
        return parse_key_set(fetch(self._url, timeout_s=_TIMEOUT_S, tls=self._tls))

    def _finish(self, reading: "asyncio.Future[list[JsonWebKey]]") -> None:
        self._reading, self._read_s, pause_s = None, self._runtime.clock.monotonic(), self._refresh_s
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            self._keys = reading.result()
        else:
            pause_s = min(pause_s, _PAUSE_S)
            _log.warning("Can't read the keys of tokens at %s; the last ones stay in use: %s", self._url, error)
        self._restart_timer(pause_s)

    def _restart_timer(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.refresh)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
