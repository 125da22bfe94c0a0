"""An issuer of OAUTHBEARER tokens in the test's process, by HTTP on a loopback port.

```
GET /jwks      the public key that signs tokens (RFC 7517)
POST /token    a token by client credentials (RFC 6749, 4.4): a user's name and password
```
"""

import json
from base64 import b64decode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from importlib import import_module
from socketserver import ThreadingTCPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import unquote_plus

from odradek.model import packages_of
from odradek.testing.machine_clock import MachineClock

AUDIENCE: Final = "kafka"
_POLL_S: Final = 0.05
_LARGEST_REQUEST: Final = 1 << 16


class TokenIssuer:
    """The tokens of a cluster's users.

    `lifetime_s` is the lifetime of new tokens; `clock_offset_s` is how far the issuer's clock is ahead of the brokers'.
    """

    def __init__(self) -> None:
        self.lifetime_s = 300.0
        self.clock_offset_s = 0.0
        self.url, self.port = "", -1
        self._passwords: Mapping[str, str] = {}
        self._failure: int | None = None
        self._server: ThreadingTCPServer | None = None
        self._thread: Thread | None = None

    def start(self, passwords: Mapping[str, str]) -> None:
        """Serve these users at `url`, with a new key. Raises `ConfigurationError` if a package is missing."""
        with packages_of("security", "OAUTHBEARER tokens"):
            import jwt
            from cryptography.hazmat.primitives.asymmetric import ec
        self._jwt, self._passwords = jwt, passwords
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._key_set = {"keys": [jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)]}
        self._server = ThreadingTCPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"issuer": self}))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL_S,), name="token issuer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; a second call does nothing."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None

    def fail(self, status: int = 503) -> None:
        """Answer requests for tokens with this HTTP status until `heal`. Tokens that clients have stay valid."""
        self._failure = status

    def heal(self) -> None:
        """Issue tokens again."""
        self._failure = None

    def token(self, user: str) -> str:
        """Return a new token. Raises `ConnectionError` while the endpoint fails."""
        if self._failure is not None:
            raise ConnectionError(f"the token endpoint answers {self._failure}")
        now_s = MachineClock().now_ms() / 1000 + self.clock_offset_s
        claims = {"sub": user, "iss": self.url, "aud": AUDIENCE, "iat": now_s, "exp": now_s + self.lifetime_s}
        return self._jwt.encode(claims, self._key, "ES256")

    def provider(self, user: str, client: str) -> object:
        """Return the object from which aiokafka or kafka-python gets the user's tokens."""
        if client == "aiokafka":
            base = import_module("aiokafka.abc").AbstractTokenProvider

            async def token(_provider: object) -> str:
                return self.token(user)
        else:
            base = import_module("kafka.net.sasl.oauth").AbstractTokenProvider

            def token(_provider: object) -> str:  # type: ignore[misc]
                return self.token(user)

        return type("TokenProvider", (base,), {"token": token})()

    def answer(self, method: str, path: str, authorization: str) -> tuple[int, Mapping[str, Any]]:
        """Return the HTTP status and the content of the response to a request."""
        if (method, path) == ("GET", "/jwks"):
            return 200, self._key_set
        if (method, path) != ("POST", "/token"):
            return 404, {"error": "not_found"}
        if self._failure is not None:
            return self._failure, {"error": "temporarily_unavailable"}
        try:
            sent = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        except ValueError:
            sent = "", "", ""
        # RFC 6749 encodes both as forms do; Java's and other clients do not by default.
        for user, _, password in (sent, [unquote_plus(each) for each in sent]):
            if self._passwords.get(user) == password:
                content = {"access_token": self.token(user), "token_type": "Bearer", "expires_in": self.lifetime_s}
                return 200, content
        return 401, {"error": "invalid_client"}


class _Handler(BaseHTTPRequestHandler):
    issuer: TokenIssuer

    def do_GET(self) -> None:
        self.rfile.read(min(int(self.headers.get("Content-Length", 0)), _LARGEST_REQUEST))
        status, content = self.issuer.answer(self.command, self.path, self.headers.get("Authorization", ""))
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET  # noqa: N815 (http.server's name)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""
