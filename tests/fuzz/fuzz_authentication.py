"""Target: connections that have not authenticated yet, for each SASL mechanism.

An input is a list of steps: frames of ApiVersions, SaslHandshake and other APIs, tokens of a real client, the same ones
changed or repeated, and arbitrary bytes. A connection gets a user only by the token of a client that knows the secret.
"""

import asyncio
import json
import random
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from fuzz_engine import Target
from jwt.algorithms import ECAlgorithm

from odradek.broker.authentication.session_authentication import AUTHENTICATION, SessionAuthentication, State
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.serving.admission import Admission
from odradek.broker.serving.apis import apis
from odradek.broker.serving.client_quotas import ClientQuotas
from odradek.broker.serving.context import Session
from odradek.broker.serving.dispatch import Dispatcher
from odradek.config import BrokerConfig
from odradek.config.security import MECHANISMS
from odradek.metrics.counters import BrokerCounters
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import encode_request_header
from odradek.protocol.messages.message_codec import encode_request
from odradek.security import ALLOW_ALL, ANONYMOUS
from odradek.security.sasl import (
    JsonWebTokenValidator,
    OauthBearerClient,
    OauthBearerServer,
    PlainClient,
    PlainServer,
    SaslClient,
    SaslServer,
    ScramClient,
    ScramServer,
    parse_key_set,
    scram,
    scram_credential,
)

scram.salted_password = cache(scram.salted_password)
"""Salting takes milliseconds on purpose, and the client's password and salt are always the same."""
_LOOP: Final = asyncio.new_event_loop()
_NOW_S: Final = 1_790_000_000
_USER, _PASSWORD = "alice", "secret"
_OTHERS: Final = [api for api in ApiKey if api not in AUTHENTICATION]
_KEY: Final = ec.generate_private_key(ec.SECP256R1())
_CONFIG: Final = BrokerConfig.parse({"connection.failed.authentication.delay.ms": "0"})
_METADATA: Final = MetadataCache(_CONFIG)


@cache
def _bearer(lifetime_s: int) -> str:
    claims = {"sub": _USER, "iat": _NOW_S, "exp": _NOW_S + lifetime_s}
    return jwt.encode(claims, _KEY, "ES256", headers={"kid": "k"})


@cache
def _validator() -> JsonWebTokenValidator:
    keys = parse_key_set(json.dumps({"keys": [ECAlgorithm.to_jwk(_KEY.public_key(), as_dict=True)]}).encode())
    return JsonWebTokenValidator(
        lambda kid: keys if kid in {"k", None} else [],
        lambda: _NOW_S * 1000,
        audiences=(),
        issuer=None,
        clock_skew_s=30,
        subject_claim="sub",
        scope_claim="scope",
    )


@cache
def _credential(mechanism: str) -> Any:
    return scram_credential(mechanism, _PASSWORD, salt=b"salt", iterations=4096)


def _server(mechanism: str) -> SaslServer:
    if mechanism == "PLAIN":
        return PlainServer({_USER: _PASSWORD})
    if mechanism == "OAUTHBEARER":
        return OauthBearerServer(_validator().check)
    credential = _credential(mechanism)
    return ScramServer(mechanism, {_USER: credential}.get, nonce="server", secret=b"s")


def _client(mechanism: str, *, knows: bool) -> SaslClient:
    if mechanism == "PLAIN":
        return PlainClient(_USER, _PASSWORD if knows else "wrong")
    if mechanism == "OAUTHBEARER":
        return OauthBearerClient(_bearer(3600 if knows else -3600))
    return ScramClient(mechanism, _USER, _PASSWORD if knows else "wrong", nonce="client")


class _Connection:
    """A connection whose replies are read at once."""

    session: Session
    peer_host = "h"

    def __init__(self) -> None:
        self.is_closed = False

    def close(self, reason: str = "") -> None:
        assert _PASSWORD not in reason
        self.is_closed = True

    def exception(self, text: str, error: BaseException) -> None:
        raise AssertionError(text) from error

    def limit_frames(self, largest: int) -> None:
        """Take any frame."""

    def hold(self) -> None:
        raise AssertionError("nothing has to wait")


class _Broker:
    """The parts that handlers of authentication use; others would fail without theirs."""

    def __init__(self) -> None:
        self.config, self.counters = _CONFIG, BrokerCounters()
        self.image = _METADATA.image


class _Clock:
    def now_ms(self) -> int:
        return _NOW_S * 1000

    def monotonic(self) -> float:
        return 0.0


class _Peer:
    """One connection, and the real client that answers the server's challenges."""

    def __init__(self) -> None:
        self.connection = _Connection()
        made: Any = self.connection
        clock: Any = _Clock()
        admission = Admission(ALLOW_ALL)
        quotas = ClientQuotas(_CONFIG, clock)
        self.dispatcher = Dispatcher(
            _Broker(), _METADATA, BrokerCounters(), admission, quotas=quotas, is_own_command=lambda body: False
        )
        self.dispatcher.serve_clients()
        self.authentication = SessionAuthentication(
            {mechanism: lambda mechanism=mechanism: _server(mechanism) for mechanism in MECHANISMS},  # type: ignore[misc]
            clock,
            max_session_ms=0,
            suspend=lambda: None,
            close=made.close,
        )
        self.session = Session(connection=made, listener="L", client_host="h", admission=admission)
        self.session.authentication = self.authentication
        made.session = self.session
        self.mechanism = ""
        self.knows = False
        self.client: SaslClient | None = None
        self.genuine = b""
        """The next token of a client that knows the secret, or the last."""

    def handshake(self, mechanism: str, *, knows: bool) -> None:
        self.send(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
        if mechanism in MECHANISMS and self.authentication.state is State.EXCHANGE:
            self.mechanism, self.knows, self.client = mechanism, knows, _client(mechanism, knows=knows)
            self.genuine = self.client.step(b"") or b""

    def token(self, token: bytes) -> None:
        answer = b""
        before, step = self.authentication.state, self.authentication.authenticate

        def watched(token: bytes) -> tuple[bytes, int]:
            nonlocal answer
            answer, lifetime_ms = step(token)
            return answer, lifetime_ms

        self.authentication.authenticate = watched  # type: ignore[method-assign]
        self.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        del self.authentication.authenticate
        if before is State.EXCHANGE and self.authentication.state is State.AUTHENTICATED:
            assert self.proves(token), (self.mechanism, token)
        elif answer and self.client is not None and token == self.genuine:
            self.genuine = self.client.step(answer) or b""

    def proves(self, token: bytes) -> bool:
        """Return whether a token has what only a client with the secret has, perhaps in another encoding."""
        if self.mechanism == "PLAIN":
            return token.endswith(f"\0{_USER}\0{_PASSWORD}".encode())
        if self.mechanism == "OAUTHBEARER":
            signed, _, signature = _bearer(3600).rpartition(".")
            found = token.rpartition(f"{signed}.".encode())[2].partition(b"\x01")[0].strip()
            return urlsafe_b64decode(found + b"==") == urlsafe_b64decode(f"{signature}==")
        message, _, proof = self.genuine.rpartition(b",p=")
        return self.knows and token.startswith(message) and b64decode(token[len(message) + 3 :]) == b64decode(proof)

    def send(self, api: int, version: int, message: dict[str, Any] | bytes) -> None:
        body = message if isinstance(message, bytes) else encode_request(ApiKey(api), version, message)
        self.frame(encode_request_header(api, version, 1, "c") + body)

    def frame(self, frame: bytes) -> None:
        before = self.authentication.state
        self.dispatcher.serve(self.connection, memoryview(frame), alone=True)  # type: ignore[arg-type]
        after, user = self.authentication.state, self.session.principal
        assert (user == ANONYMOUS) == (not self.authentication.user), user
        assert user.name in {"ANONYMOUS", _USER}
        if int.from_bytes(frame[:2], "big") not in AUTHENTICATION:
            assert self.connection.is_closed
            assert after is before


async def _play(data: bytes) -> None:
    peer, rest, steps = _Peer(), iter(data), 0
    try:
        # What an authenticated client may send is not this target's: only a renewal.
        while not peer.connection.is_closed and (step := next(rest, None)) is not None and steps < 40:
            steps += 1
            _step(peer, step, rest)
            await asyncio.sleep(0)
    finally:
        peer.authentication.close()
        await peer.dispatcher.stop()


def _step(peer: _Peer, step: int, rest: Iterator[int]) -> None:
    option = next(rest, 0)
    match step % 8:
        case 0:
            software = {"client_software_name": "c", "client_software_version": "1"}
            peer.send(ApiKey.API_VERSIONS, option % 5, software)
        case 1:
            names = (*MECHANISMS, "GSSAPI", "")
            peer.handshake(names[option % len(names)], knows=option < 128)
        case 2:
            peer.token(peer.genuine)
        case 3:
            changed = bytearray(peer.genuine or b"\0")
            changed[option % len(changed)] ^= next(rest, 1)
            peer.token(bytes(changed))
        case 4:
            peer.token(bytes(byte for _, byte in zip(range(option), rest)))  # noqa: B905 (the rest may be shorter)
        case 5 if peer.authentication.state is not State.AUTHENTICATED:
            api = _OTHERS[option % len(_OTHERS)]
            served = apis().get(api)
            peer.send(api, served.served.stop - 1 if served else 0, bytes(20))
        case 6:
            cut = next(rest, 0)
            peer.token(peer.genuine[: len(peer.genuine) * cut // 256] + peer.genuine[:option])
        case 7 if peer.authentication.state is not State.AUTHENTICATED:
            peer.frame(bytes(byte for _, byte in zip(range(option), rest)))  # noqa: B905


def check_authentication(data: bytes) -> None:
    """Play the steps of one connection."""
    _LOOP.run_until_complete(_play(data))


def authentication_seeds() -> Iterator[bytes]:
    """Yield complete exchanges of each mechanism, with and without the secret, and a renewal."""
    for mechanism in range(len(MECHANISMS)):
        for knows in (0, 128 + (16 - 128 % 6)):
            option = mechanism + knows
            whole = bytes((0, 3, 1, option, 2, 0, 2, 0, 2, 0))
            yield whole
            yield whole[2:] + whole[2:]
            yield whole[:-4] + bytes((3, 5, 1))
            yield whole[:-4] + bytes((6, 9, 255))
    yield bytes((5, 3, 1, 0))
    yield bytes((1, 0, 4, 13)) + b"\0alice\0secret" + bytes((1, 4))
    yield bytes((1, 3, 4, 20)) + b"n,,\x01auth=Bearer a.b.c\x01\x01" + bytes((4, 1, 1))
    yield bytes((7, 30)) + encode_request_header(ApiKey.SASL_HANDSHAKE, 1, 1, "c") + b"\0\5PLAIN" + bytes((2, 0))
    yield bytes((1, 1, 4, 40)) + b"n,a=bob,n=bob,r=x,m=1" + bytes(20)


def mutate_steps(data: bytes, chance: random.Random) -> bytes | None:
    """Insert a step, or repeat a part."""
    place = chance.randrange(len(data) + 1)
    if chance.random() < 0.3:
        return data[:place] + data[place // 2 :]
    step = bytes((chance.choice((0, 1, 2, 2, 3, 4, 6)), chance.randrange(256), chance.randrange(256)))
    return data[:place] + step[: chance.choice((2, 3))] + data[place:]


TARGETS = {
    "authentication": Target(
        check=check_authentication,
        seeds=authentication_seeds,
        mutate=mutate_steps,
        reaches={
            "odradek.broker.authentication.session_authentication": 0.75,
            "odradek.broker.handlers.sasl_authenticate": 0.8,
            "odradek.security.sasl.scram": 0.6,
            "odradek.security.sasl.oauthbearer": 0.8,
            "odradek.security.sasl.json_web_tokens": 0.5,
        },
        runs=3000,
        longest=256,
    ),
}
