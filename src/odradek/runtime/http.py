"""Blocking requests of token endpoints and key sets, by HTTP or from a file."""

import base64
import ssl
from collections.abc import Mapping
from typing import Final

_MOST_BYTES: Final = 1 << 20


class HttpError(Exception):
    """A request failed. `status` is the response's, None without a response."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(reason if status is None else f"{status} {reason}")


def fetch(
    url: str,
    *,
    timeout_s: float,
    form: Mapping[str, str] | None = None,
    credentials: tuple[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """Return what `url` (http, https or file) has: up to 1 MiB; with `form`, POST it. Raises `HttpError`."""
    # Imported here, because they cost every client 1 MB.
    import http.client
    import urllib.error
    import urllib.parse
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """Lets a redirect fail: the credentials are for one server."""

        def redirect_request(self, *arguments: object) -> None:
            return None

    request = urllib.request.Request(url)
    if form is not None:
        request.data = urllib.parse.urlencode(form).encode()
    if credentials is not None:
        pair = ":".join(urllib.parse.quote_plus(each) for each in credentials)
        request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
    opener = urllib.request.build_opener(NoRedirect, urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(request, timeout=timeout_s) as response:
            content: bytes = response.read(_MOST_BYTES)
            return content
    except urllib.error.HTTPError as error:
        with error:
            raise HttpError(error.reason, error.code) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise HttpError(str(getattr(error, "reason", error))) from None
