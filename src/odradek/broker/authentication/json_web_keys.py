"""The keys that sign bearer tokens: a JWKS at a URL, read at the start and again in the background."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from odradek.config.definition import definitions, parse_all
from odradek.config.listener_settings import ListenerSettings
from odradek.config.security import ConnectionSecurity
from odradek.model import ConfigurationError, SecurityProtocol
from odradek.runtime import Runtime
from odradek.runtime.http import HttpError, fetch
from odradek.security.sasl import parse_jaas, parse_key_set
from odradek.security.sasl.json_web_tokens import JsonWebKey
from odradek.wire.client_security import client_tls

_log = logging.getLogger("odradek.broker")
_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 10.0
"""The time between two readings of which the second is for an unknown key, or after a failure."""


class JsonWebKeys:
    """The keys at the URL of a listener. When reading them again fails, the last ones stay.

    For `https`, options `ssl.*` of the listener's `sasl.jaas.config` for OAUTHBEARER hold, as in Kafka. Blocks while it
    reads the keys for the first time; raises `ConfigurationError` if it cannot, as Kafka does. Needs a running loop.
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
        self._reading: asyncio.Future[list[JsonWebKey]] | None = None
        try:
            self._keys = self._read()
        except (HttpError, ValueError) as error:
            raise ConfigurationError(
                f"OAUTHBEARER on the listener {settings.name}: can't read the keys at {url}: {error}"
            ) from None
        self._read_s = runtime.clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._refresh_s, self.refresh)

    def find(self, kid: str | None) -> Sequence[JsonWebKey]:
        """Return the keys with this id, all of them for None. For an unknown id, read the keys again in background."""
        found = [each for each in self._keys if kid is None or each.get("kid") == kid]
        if not found and self._runtime.clock.monotonic() - self._read_s >= _PAUSE_S:
            self.refresh()
        return found

    def refresh(self) -> None:
        """Begin to read the keys again, unless that is going on."""
        if self._reading is None:
            self._timer.cancel()
            self._reading = self._runtime.disk.submit(self._read, background=True)
            self._reading.add_done_callback(self._finish)

    def close(self) -> None:
        """Read the keys no more."""
        self._timer.cancel()
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
        self._timer = asyncio.get_running_loop().call_later(pause_s, self.refresh)
