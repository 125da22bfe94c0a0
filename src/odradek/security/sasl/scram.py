"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677): the password is not sent, and the server proves that it knows it.

```
client   n,,n=USER,r=CLIENT-NONCE
server   r=CLIENT-NONCE SERVER-NONCE,s=SALT,i=ITERATIONS
client   c=biws,r=CLIENT-NONCE SERVER-NONCE,p=PROOF
server   v=SIGNATURE
```
Hashes are the standard library's: `hashlib.pbkdf2_hmac` and `hmac`. As in Kafka, texts are not normalised.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from odradek.model import AuthenticationError
from odradek.security.sasl.exchange import LONGEST_NAME, invalid_credentials, invalid_token

FEWEST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384
"""Kafka's limits of iterations. A client accepts more from a server, up to `_MOST_ACCEPTED`."""
_MOST_ACCEPTED: Final = 1_000_000
_LONGEST_TOKEN: Final = 16 * 1024
"""Limit of a token's bytes: its fields are parsed before the other side has authenticated."""
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by their numbers in requests (KIP-554)."""


class ScramCredential(Struct, frozen=True, kw_only=True):
    """The part of a password that a server stores: enough to check a client, not enough to be one."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def encode_credential(credential: ScramCredential) -> str:
    """Return Kafka's text of a credential in the metadata tree."""
    parts = ("salt", credential.salt), ("stored_key", credential.stored_key), ("server_key", credential.server_key)
    texts = [f"{name}={b64encode(value).decode()}" for name, value in parts]
    return ",".join([*texts, f"iterations={credential.iterations}"])


def decode_credential(text: str) -> ScramCredential | None:
    """Return the credential in Kafka's text of the metadata tree; None if the text is none."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return ScramCredential(
            salt=b64decode(fields["salt"], validate=True),
            stored_key=b64decode(fields["stored_key"], validate=True),
            server_key=b64decode(fields["server_key"], validate=True),
            iterations=int(fields["iterations"]),
        )
    except (KeyError, ValueError):
        return None


def scram_credential(mechanism: str, password: str, *, salt: bytes, iterations: int) -> ScramCredential:
    salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
    return credential_of_salted(mechanism, salted, salt=salt, iterations=iterations)


def salted_password(mechanism: str, password: str, *, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, which a client sends in AlterUserScramCredentials."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def credential_of_salted(mechanism: str, salted: bytes, *, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a salted password, which is what AlterUserScramCredentials carries."""
    stored_key = hashlib.new(_HASHES[mechanism], _hmac(mechanism, salted, b"Client Key")).digest()
    server_key = _hmac(mechanism, salted, b"Server Key")
    return ScramCredential(salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations)


class ScramClient:
    """The client's side of one exchange. `nonce` is a random printable text without commas."""

    def __init__(self, mechanism: str, user: str, password: str, *, nonce: str) -> None:
        self.mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""
        self._state = "first"

    def step(self, challenge: bytes) -> bytes | None:
        if self._state == "first":
            self._state = "proof"
            return f"n,,{self._first}".encode()
        fields = _fields(self.mechanism, challenge)
        if "e" in fields:
            raise AuthenticationError(f"the broker refused {self.mechanism}: {fields['e']}")
        if self._state == "proof":
            self._state = "signature"
            return self._prove(challenge.decode(), fields)
        if not hmac.compare_digest(_bytes(self.mechanism, fields.get("v", "")), self._signature):
            raise AuthenticationError(f"the broker failed to prove that it knows the password ({self.mechanism})")
        return None

    def _prove(self, server_first: str, fields: dict[str, str]) -> bytes:
        nonce, salt, iterations = fields.get("r", ""), _bytes(self.mechanism, fields.get("s", "")), fields.get("i", "")
        is_number = iterations.isascii() and iterations.isdigit() and len(iterations) < 8
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt or not is_number:
            raise invalid_token(self.mechanism)
        if not FEWEST_ITERATIONS <= int(iterations) <= _MOST_ACCEPTED:
            raise AuthenticationError(f"the broker requests {iterations} iterations of {self.mechanism}: refused")
        salted = salted_password(self.mechanism, self._password, salt=salt, iterations=int(iterations))
        client_key = _hmac(self.mechanism, salted, b"Client Key")
        stored_key = hashlib.new(_HASHES[self.mechanism], client_key).digest()
        final = f"c=biws,r={nonce}"
        message = f"{self._first},{server_first},{final}".encode()
        proof = _xor(client_key, _hmac(self.mechanism, stored_key, message))
        self._signature = _hmac(self.mechanism, _hmac(self.mechanism, salted, b"Server Key"), message)
        return f"{final},p={b64encode(proof).decode()}".encode()


class ScramServer:
    """The server's side of one exchange. `credential_of` returns the credential of a user, or None.

    `nonce` is a random printable text without commas. For a user without a credential the exchange goes on with the
    salt and the iterations that `imagined` returns, and fails at its end: a client cannot tell which users exist.
    """

    expires_ms: int | None = None

    def __init__(
        self,
        mechanism: str,
        credential_of: Callable[[str], ScramCredential | None],
        imagined: Callable[[str], tuple[bytes, int]],
        *,
        nonce: str,
    ) -> None:
        self.mechanism = mechanism
        self.user = ""
        self._credential_of = credential_of
        self._nonce = nonce
        self._imagined = imagined
        self._claimed = ""
        self._credential: ScramCredential | None = None
        self._message = ""

    def step(self, token: bytes) -> bytes:
        if self.user:
            raise invalid_token(self.mechanism)
        return self._finish(token) if self._message else self._begin(token)

    def _begin(self, token: bytes) -> bytes:
        flag, comma, rest = token.partition(b",")
        authorization_id, comma, bare = rest.partition(b",")
        fields = _fields(self.mechanism, bare)
        user = fields.get("n", "").replace("=2C", ",").replace("=3D", "=")
        if flag != b"n" or not comma or not user or len(user) > LONGEST_NAME or not fields.get("r") or "m" in fields:
            raise invalid_token(self.mechanism)
        if authorization_id not in {b"", b"a=" + fields["n"].encode()}:
            raise AuthenticationError("Authentication failed: the authorization id is not the user name")
        if fields.get("tokenauth") == "true":
            raise AuthenticationError("Authentication failed: delegation tokens are not supported")
        self._claimed = user
        self._header = b64encode(token[: len(token) - len(bare)]).decode()
        self._nonce = fields["r"] + self._nonce
        self._credential = credential = self._credential_of(user)
        salt, iterations = (credential.salt, credential.iterations) if credential else self._imagined(user)
        server_first = f"r={self._nonce},s={b64encode(salt).decode()},i={iterations}"
        self._message = f"{bare.decode()},{server_first}"
        return server_first.encode()

    def _finish(self, token: bytes) -> bytes:
        final, _, _ = token.rpartition(b",p=")
        fields = _fields(self.mechanism, token)
        # The nonce must be the whole one, or a client could replay half of an exchange (CVE-2024-56128).
        if fields.get("r") != self._nonce or fields.get("c") != self._header or not final:
            raise invalid_token(self.mechanism)
        credential, proof = self._credential, _bytes(self.mechanism, fields.get("p", ""))
        if credential is None or len(proof) != len(credential.stored_key):
            raise invalid_credentials(self.mechanism)
        message = f"{self._message},{final.decode()}".encode()
        client_key = _xor(proof, _hmac(self.mechanism, credential.stored_key, message))
        if not hmac.compare_digest(hashlib.new(_HASHES[self.mechanism], client_key).digest(), credential.stored_key):
            raise invalid_credentials(self.mechanism)
        self.user = self._claimed
        return b"v=" + b64encode(_hmac(self.mechanism, credential.server_key, message))


def _fields(mechanism: str, token: bytes) -> dict[str, str]:
    """Return the fields `NAME=VALUE` of a token. Raises `AuthenticationError` for other text."""
    if len(token) > _LONGEST_TOKEN:
        raise invalid_token(mechanism)
    try:
        pairs = [part.partition("=") for part in token.decode().split(",")]
    except UnicodeDecodeError:
        raise invalid_token(mechanism) from None
    if any(not equals for _, equals, _ in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
        raise invalid_token(mechanism)
    return {name: value for name, _, value in pairs}


def _bytes(mechanism: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid_token(mechanism) from None


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _HASHES[mechanism])


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
