"""Target: what a connection sends before it has authenticated, without a socket, an event loop or handlers.

An input is a stream of bytes. It is cut into frames, whose headers and SASL requests are decoded for
`SessionAuthentication`. A frame of the API `_TIMER` makes the session's timer fire. A connection gets a user only by
the token of a client that knows the secret.
"""

import asyncio
import json
import random
import struct
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterator
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from conformance.fuzz.client_requests import recorded
from conformance.fuzz.fuzz_engine import Target
from odradek.broker.apis import APIS, AUTHENTICATION
from odradek.broker.security.session_authentication import SessionAuthentication, State
from odradek.model import AuthenticationError, KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import decode_request_header, encode_request_header
from odradek.protocol.messages.message_codec import decode_request, encode_request
from odradek.protocol.primitives import Meter
from odradek.security.sasl.exchange import SaslClient, SaslServer
from odradek.security.sasl.json_web_tokens import JsonWebTokenValidator, parse_key_set
from odradek.security.sasl.oauthbearer import OauthBearerClient, OauthBearerServer
from odradek.security.sasl.plain import PlainClient, PlainServer
from odradek.security.sasl.scram import ScramClient, ScramServer, scram_credential
from odradek.wire.buffers import BufferPool
from odradek.wire.frames import FrameBuffer, FrameSizeError

_USER, _PASSWORD = "alice", "secret"
_NOW_MS: Final = 1_790_000_000_000
_KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(32))
_KEYS: Final = parse_key_set(json.dumps({"keys": [OKPAlgorithm.to_jwk(_KEY.public_key(), as_dict=True)]}).encode())
_CLAIMS: Final = {"sub": _USER, "iat": _NOW_MS // 1000, "exp": _NOW_MS // 1000 + 5}
_BEARER: Final = jwt.encode(_CLAIMS, _KEY, "EdDSA")
_EXPIRED: Final = jwt.encode(_CLAIMS | {"exp": 1}, _KEY, "EdDSA")
_TIMER: Final = 999
_LARGEST_FRAME: Final = 2048
_MOST_FRAMES: Final = 20
_POOL: Final = BufferPool()
_SIZE: Final = struct.Struct(">i")
_TOKEN_AT: Final = len(encode_request_header(ApiKey.SASL_AUTHENTICATE, 1, 1, "c"))
_SCRAM: Final = {
    each: scram_credential(each, _PASSWORD, salt=b"salt", iterations=4096)
    for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")
}


_VALIDATOR: Final = JsonWebTokenValidator(
    lambda kid: _KEYS,
    lambda: _NOW_MS,
    audiences=(),
    issuer=None,
    clock_skew_s=30,
    subject_claim="sub",
    scope_claim="scope",
)


def _scram_server(mechanism: str) -> ScramServer:
    return ScramServer(mechanism, {_USER: _SCRAM[mechanism]}.get, lambda _: (b"salt", 4096), nonce="server")


_SERVERS: Final[dict[str, Callable[[], SaslServer]]] = {
    "PLAIN": lambda: PlainServer({_USER: _PASSWORD}),
    "SCRAM-SHA-256": lambda: _scram_server("SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda: _scram_server("SCRAM-SHA-512"),
    "OAUTHBEARER": lambda: OauthBearerServer(_VALIDATOR.check),
}


def _client(mechanism: str, *, knows: bool) -> SaslClient:
    password = _PASSWORD if knows else "wrong"
    if mechanism == "PLAIN":
        return PlainClient(_USER, password)
    if mechanism == "OAUTHBEARER":
        return OauthBearerClient(_BEARER if knows else _EXPIRED)
    return ScramClient(mechanism, _USER, password, nonce="client")


def _tokens(mechanism: str, *, knows: bool) -> list[bytes]:
    """Return the client's tokens of a whole exchange, as far as the server takes them."""
    client, server, tokens, answer = _client(mechanism, knows=knows), _SERVERS[mechanism](), list[bytes](), b""
    while not server.user and (token := client.step(answer)) is not None:
        tokens.append(token)
        try:
            answer = server.step(token)
        except AuthenticationError:
            break
    return tokens


_LAST: Final = {mechanism: _tokens(mechanism, knows=True)[-1] for mechanism in _SERVERS}


def _proves(mechanism: str, token: bytes) -> bool:
    """Return whether a token has what only a client with the secret has, perhaps in another encoding."""
    if mechanism == "PLAIN":
        return token in {b"\0alice\0secret", b"alice\0alice\0secret"}
    if mechanism == "OAUTHBEARER":
        signed, _, signature = _BEARER.rpartition(".")
        found = token.rpartition(f"{signed}.".encode())[2].partition(b"\x01")[0].strip()
        return urlsafe_b64decode(found + b"==") == urlsafe_b64decode(f"{signature}==")
    message, _, proof = _LAST[mechanism].rpartition(b",p=")
    return token.startswith(message + b",p=") and b64decode(token[len(message) + 3 :]) == b64decode(proof)


class _Peer:
    """One connection; also its clock, and an event loop with nothing but its timer."""

    def __init__(self) -> None:
        self.is_closed = False
        self.fire: Callable[[], object] | None = None
        self.mechanism = ""
        self.is_proven = False
        clock: Any = self
        self.authentication = SessionAuthentication(
            _SERVERS, clock, max_session_ms=3000, suspend=lambda: None, close=self.close
        )

    def now_ms(self) -> int:
        return _NOW_MS

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: str) -> "_Peer":
        assert 0 < delay_s <= 30
        self.fire = lambda: callback(*args)
        return self

    def cancel(self) -> None:
        self.fire = None

    def close(self, reason: str) -> None:
        assert _PASSWORD not in reason
        self.is_closed = True

    def receive(self, data: bytes) -> None:
        """Serve the frames of a stream that arrives in two pieces."""
        frames, cut, served = FrameBuffer(_POOL, _LARGEST_FRAME), data[0] + 1, 0
        try:
            for piece in filter(None, (data[1:cut], data[cut:])):
                frames.space()[: len(piece)] = piece
                frames.filled(len(piece))
                while not self.is_closed and served < _MOST_FRAMES and (frame := frames.next_frame()) is not None:
                    served += 1
                    self.serve(frame)
                    assert bool(self.authentication.user) == self.is_proven
        except (FrameSizeError, KafkaError) as error:
            self.close(str(error))
        finally:
            frames.close()

    def serve(self, frame: memoryview) -> None:
        """Do what dispatcher and handlers do with a frame. Raises `KafkaError` where they close the connection."""
        header, authentication = decode_request_header(frame), self.authentication
        key, state = header.api_key, authentication.state
        if key == _TIMER:
            if self.fire is not None:
                self.fire()
            assert self.is_closed or authentication.state in {State.AUTHENTICATED, State.EXPIRED}
            return
        if not authentication.serves(key):
            assert state is not State.AUTHENTICATED
            self.close("not served")
            return
        assert self.is_proven or key in AUTHENTICATION
        if key not in AUTHENTICATION or header.api_version not in APIS[ApiKey(key)].served:
            return
        message = decode_request(key, header.api_version, bytes(frame[header.body_offset :]), meter=Meter(100))
        if key == ApiKey.SASL_HANDSHAKE:
            self.mechanism = message.mechanism
            try:
                authentication.handshake(self.mechanism)
            except KafkaError:
                assert self.mechanism not in _SERVERS
                assert authentication.state is State.FAILED
                self.is_closed = True
        elif key == ApiKey.SASL_AUTHENTICATE and authentication.is_in_exchange:
            self.step(bytes(message.auth_bytes))

    def step(self, token: bytes) -> None:
        """Give the exchange a token."""
        try:
            response, lifetime_ms = self.authentication.authenticate(token)
        except AuthenticationError as error:
            assert self.authentication.state is State.FAILED
            self.close(str(error))
            return
        assert _PASSWORD.encode() not in response or _PASSWORD.encode() in token  # a nonce of the client comes back
        if self.authentication.state is State.AUTHENTICATED:
            assert self.authentication.user == _USER
            assert _proves(self.mechanism, token), (self.mechanism, token)
            assert lifetime_ms == 3000
            self.is_proven = True


def check_handshakes(data: bytes) -> None:
    """Serve one connection."""
    if not data:
        return
    peer: Any = _Peer.__new__(_Peer)
    asyncio._set_running_loop(peer)
    try:
        peer.__init__()
        peer.receive(data)
    finally:
        asyncio._set_running_loop(None)


# ---- inputs ---------------------------------------------------------------------------------------------------------


def _request(api: int, version: int, body: bytes = b"") -> bytes:
    return encode_request_header(api, version, 1, "c") + body


def _token_request(token: bytes) -> bytes:
    return _request(ApiKey.SASL_AUTHENTICATE, 1, _SIZE.pack(len(token)) + token)


def _exchange(mechanism: str, *, knows: bool) -> list[bytes]:
    handshake = encode_request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
    tokens = [_token_request(each) for each in _tokens(mechanism, knows=knows)]
    return [_request(ApiKey.SASL_HANDSHAKE, 1, handshake), *tokens]


def stream_of(frames: list[bytes], cut: int = 9) -> bytes:
    """Return an input: where the stream is cut, and the frames."""
    return bytes([cut]) + b"".join(_SIZE.pack(len(each)) + each for each in frames)


def handshake_seeds() -> Iterator[bytes]:
    """Yield exchanges of each mechanism, renewals, other requests between, and what existing clients begin with."""
    versions = _request(ApiKey.API_VERSIONS, 3, b"\x02c\x021\x00")
    for mechanism in _SERVERS:
        right, wrong = _exchange(mechanism, knows=True), _exchange(mechanism, knows=False)
        yield stream_of([versions, *right])
        yield stream_of(wrong)
        yield stream_of([*right, _request(_TIMER, 0), *right, _request(ApiKey.METADATA, 0, bytes(4))])
        yield stream_of([*right, *wrong], cut=200)
        yield stream_of([*right[:1], _request(_TIMER, 0), *right[1:]])
    for frames in recorded().values():
        yield stream_of([frame for frame in frames if decode_request_header(frame).api_key in AUTHENTICATION])
    empty = _request(ApiKey.SASL_AUTHENTICATE, 2, b"\x01\x00")
    yield stream_of([*_exchange("PLAIN", knows=True)[:1], empty])
    yield stream_of([_request(ApiKey.SASL_HANDSHAKE, 1, b"\x00\x06GSSAPI"), versions])
    other = [b"n,a=alice,n=alice,r=client", b"c=bixhPWFsaWNlLA==,r=clientserver,p=AAAA"]
    yield stream_of([*_exchange("SCRAM-SHA-256", knows=True)[:1], *map(_token_request, other)])
    yield b"\x05\xff\xff\xff\xff" + bytes(9)


_SEED_FRAMES: Final[list[bytes]] = []


def frames_of(data: bytes) -> list[bytes]:
    """Return the frames of an input; the last may be cut off."""
    found, place = [], 1
    while place + 4 <= len(data):
        size = max(_SIZE.unpack_from(data, place)[0], 0)
        found.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    return found


def mutate_handshakes(data: bytes, chance: random.Random) -> bytes | None:
    """Repeat, drop, replace or change a frame; sizes of a frame and its token stay right."""
    if not _SEED_FRAMES:
        _SEED_FRAMES.extend(dict.fromkeys(frame for seed in handshake_seeds() for frame in frames_of(seed)))
    return mutate_frames(data, chance, lambda: chance.choice(_SEED_FRAMES), _changed)


def mutate_frames(
    data: bytes,
    chance: random.Random,
    new_frame: Callable[[], bytes],
    changed: Callable[[bytes, random.Random], bytes],
) -> bytes | None:
    """Repeat, drop, replace or change a frame of an input; None if it has no frame."""
    frames = frames_of(data)
    if not frames:
        return None
    place = chance.randrange(len(frames))
    match chance.randrange(6):
        case 0:
            frames.insert(place, new_frame())
        case 1:
            frames[place] = new_frame()
        case 2:
            frames.insert(chance.randrange(len(frames) + 1), frames[place])
        case 3:
            del frames[place]
        case _:
            frames[place] = changed(frames[place], chance)
    return stream_of(frames, data[0])


def _changed(frame: bytes, chance: random.Random) -> bytes:
    """Change a few bytes of a frame, of its token if it has one."""
    is_token = frame[:4] == b"\x00\x24\x00\x01" and len(frame) > _TOKEN_AT + 4
    head, body = (frame[:_TOKEN_AT], frame[_TOKEN_AT + 4 :]) if is_token else (b"", frame)
    place = chance.randrange(len(body) + 1)
    inserted = chance.choice((b"", b"\0", b",", b"=", b"\x01", b"alice", b"n=", b",m=", b"\xff", chance.randbytes(1)))
    body = body[:place] + inserted + body[place + chance.choice((0, 1, len(inserted), 9)) :]
    return head + _SIZE.pack(len(body)) + body if is_token else body


TARGETS = {
    "handshakes": Target(
        check=check_handshakes,
        seeds=handshake_seeds,
        mutate=mutate_handshakes,
        reaches={
            "odradek.broker.security.session_authentication": 0.85,
            "odradek.wire.frames": 0.7,
            "odradek.protocol.messages.headers": 0.4,
            "odradek.security.sasl.plain": 0.7,
            "odradek.security.sasl.scram": 0.5,
            "odradek.security.sasl.oauthbearer": 0.7,
            "odradek.security.sasl.json_web_tokens": 0.5,
        },
        runs=20_000,
        longest=700,
    ),
}
