"""The client's end of a TCP connection to a broker: frames, correlation ids, time-outs, API versions.

```
frame   length int32 | header | body
```
Small frames are read from a buffer of the connection, large ones straight into memory that the caller then owns. When
anything is wrong (the connection is closed, silent for too long, or receives an unexpected response), all requests in
flight fail with `UnavailableError` and the connection is closed; whether the broker executed them is not known.
"""

import asyncio
import contextlib
import logging
import ssl
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct

from odradek import __version__
from odradek.model import AuthenticationError, Buffer, ErrorCode, KafkaError, UnavailableError, address_text
from odradek.model.probes import probe
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.messages.headers import decode_response_header, encode_request_header
from odradek.protocol.messages.message_codec import decode_response, encode_request, optional
from odradek.protocol.messages.schemas import Message
from odradek.runtime import Runtime
from odradek.runtime.shortages import is_out_of_descriptors
from odradek.wire.client_authentication import AUTHENTICATION, NO_SECURITY, ClientSecurity, Prove, start_session
from odradek.wire.connection_group import limit_unsent

_log = logging.getLogger("odradek.clients")
waiting_log = logging.getLogger("odradek.clients.waiting")
"""The logger of what a client waits for; commands set its level to INFO."""
WAITING_LOG_S: Final = 2.0
"""The wait after which `waiting_log` gets a line."""
_LENGTH: Final = struct.Struct(">i")
_EXPECTS_TLS: Final = "expects TLS: set security.protocol to SSL or SASL_SSL"
_SET_PLAIN: Final = "set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
_FIRST_REQUESTS: Final = 3
"""The correlation id of the first request after one or two of ApiVersions; a login has those before it."""
_UNSUPPORTED_VERSION: Final = struct.pack(">h", ErrorCode.unsupported_version.value)
LATE_MS: Final = 1_000
"""A response is late if it takes this much longer than the request lets the broker wait. Also the check interval."""
_FIRST_API_VERSIONS: Final = 4
"""The version of the first ApiVersions: brokers before Kafka 4.4 refuse version 5, which adds nothing that is sent."""
_BUFFER_BYTES: Final = 64 << 10
_WRITE_HIGH_BYTES: Final = 64 << 10
"""asyncio's default. With more unsent than this the connection is not `writable`."""
_LARGE_FRAME_BYTES: Final = 8 << 10
"""From this size on a frame gets its own memory: a second copy would cost more than a second read."""


class RawResponse(NamedTuple):
    """An undecoded response: its frame, the offset of the body in it, and its version."""

    frame: bytes | memoryview
    offset: int
    version: int


class _Pending(Struct):
    """A request without a response yet."""

    api_key: ApiKey
    version: int
    future: asyncio.Future[RawResponse]
    timer: asyncio.TimerHandle


class ClientConnection(asyncio.BufferedProtocol):
    """An open connection, made by `open_connection`. Several requests may be in flight; brokers answer in order."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str,
        request_timeout_ms: int,
        max_response_bytes: int,
        prove: Prove | None = None,
    ) -> None:
        self.address = address
        self.closed = False
        self.writable = True
        """False from more than `_WRITE_HIGH_BYTES` unsent bytes in memory until a quarter of that is left."""
        self._when_writable: Callable[[], None] | None = None
        self.is_late = False
        """Whether a response is late and none has arrived since."""
        self._when_late: Callable[[], None] | None = None
        self._reason = ""
        self.tls_error: ssl.SSLError | None = None
        """Why TLS ended: with TLS 1.3 a broker refuses the client's certificate after the client's handshake."""
        self._client_id = client_id
        self._prove = prove
        self._request_timeout_ms = request_timeout_ms
        self._max_response_bytes = max_response_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        """The level of each feature that the cluster has finalized (KIP-584)."""
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the socket is closed: after `close`, and with TLS after the broker's answer to it."""
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self._held: list[Sequence[Buffer]] | None = None
        self._has_posted = False

    # ---- requests -----------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._pending)

    def version(self, api_key: ApiKey, *, at_most: int | None = None) -> int:
        """Return the highest common version up to `at_most`. If none, raise `KafkaError` UNSUPPORTED_VERSION."""
        ours = schema_versions(api_key)
        lowest, highest = self._versions.get(api_key, (0, -1))
        best = min(highest, ours[-1] if at_most is None else at_most)
        if best < max(lowest, ours[0]):
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"broker {self.address} does not support {api_key.name} in versions {ours[0]} to {ours[-1]}",
            )
        return best

    def supports(self, api_key: ApiKey) -> bool:
        """Return whether both sides have a common version of `api_key`."""
        lowest, highest = self._versions.get(api_key, (0, -1))
        ours = schema_versions(api_key)
        return max(lowest, ours[0]) <= min(highest, ours[-1])

    async def request(
        self, api_key: ApiKey, message: Message, *, at_most: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send `message` in the highest common version up to `at_most`. Return the response as kio's dataclass.

        Raise `UnavailableError` if there is no response or it is malformed, and `KafkaError` UNSUPPORTED_VERSION if
        there is no common version. Error codes inside the response are left to the caller.
        """
        version = self.version(api_key, at_most=at_most)
        try:
            body = encode_request(api_key, version, message)
        except (OSError, ImportError) as error:
            raise _import_error(api_key, error) from None
        reply = await self.exchange(api_key, version, (body,), timeout_ms=timeout_ms)
        return self.decode(api_key, reply)

    def decode(self, api_key: ApiKey, reply: RawResponse) -> Any:
        """Return a response as kio's dataclass. If it is malformed, close and raise `UnavailableError`."""
        try:
            return decode_response(api_key, reply.version, reply.frame, reply.offset)
        except (OSError, ImportError) as error:
            raise _import_error(api_key, error) from None
        except KafkaError as error:
            raise self.malformed(api_key, error) from error

    def malformed(self, api_key: ApiKey, error: KafkaError) -> UnavailableError:
        """Close the connection because a response could not be decoded, and return the error to raise."""
        self.close(f"its {api_key.name} response is malformed ({error})")
        return self._unavailable()

    def exchange(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer], *, timeout_ms: int | None = None
    ) -> asyncio.Future[RawResponse]:
        """Send an encoded body and return a future of the undecoded response, which may fail with `UnavailableError`.

        A response that takes longer than `timeout_ms` (by default `request.timeout.ms`) closes the connection, because
        all later responses wait behind it.
        """
        future: asyncio.Future[RawResponse] = self._loop.create_future()
        if self.closed:
            future.set_exception(self._unavailable())
            return future
        correlation_id = self._write(api_key, version, body)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        first_ms = limit_ms
        if self._when_late is not None:
            first_ms = min(max(limit_ms - self._request_timeout_ms, 0) + LATE_MS, limit_ms)
        timer = self._loop.call_later(first_ms / 1000, self._overdue, correlation_id, first_ms, limit_ms)
        self._pending[correlation_id] = _Pending(api_key, version, future, timer)
        return future

    def post(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> None:
        """Send a body that gets no response: a produce request with `acks=0`. Raise `UnavailableError` if closed."""
        if self.closed:
            raise self._unavailable()
        self._has_posted = True
        self._write(api_key, version, body)

    def _write(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> int:
        assert self._transport is not None
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        proof = b"" if self._prove is None else self._prove(api_key, version, correlation_id, body)
        header = encode_request_header(api_key, version, correlation_id, self._client_id, proof)
        size = len(header) + sum(map(len, body))
        frame = (_LENGTH.pack(size) + header, *body)
        if self._held is not None and api_key not in AUTHENTICATION:
            self._held.append(frame)
            return correlation_id
        self._transport.writelines(frame)
        if self.writable and self._transport.get_write_buffer_size() > _WRITE_HIGH_BYTES:
            limit_unsent(self._transport, _WRITE_HIGH_BYTES)
        return correlation_id

    def hold_requests(self) -> None:
        """Keep all requests but those of authentication until `send_held_requests`: a broker would refuse them."""
        self._held = []

    def send_held_requests(self) -> None:
        """Send the requests that `hold_requests` kept."""
        held, self._held = self._held or (), None
        if self._transport is not None and not self.closed:
            self._transport.writelines([piece for frame in held for piece in frame])

    async def negotiate(self, unlisted: Collection[int] = ()) -> None:
        """Request the broker's API versions (KIP-35), in version 4 or, if that is refused, the broker's.

        APIs that are `unlisted` in the response are taken to be served in our versions.
        """
        version = _FIRST_API_VERSIONS
        message = {"client_software_name": "odradek", "client_software_version": __version__}
        for _ in range(2):
            body = encode_request(ApiKey.API_VERSIONS, version, message)
            reply = await self.exchange(ApiKey.API_VERSIONS, version, (body,))
            if reply.frame[reply.offset : reply.offset + 2] != _UNSUPPORTED_VERSION:
                break
            version = self._lower_version(reply)
        response = self.decode(ApiKey.API_VERSIONS, reply)
        if response.error_code != ErrorCode.none:
            self.close(f"it refused ApiVersions ({response.error_code.name})")
            raise self._unavailable()
        self._versions = {each: (schema_versions(each)[0], schema_versions(each)[-1]) for each in unlisted}
        self._versions |= {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        finalized: Sequence[Any] = optional(response, "finalized_features", ())
        self.finalized_features = {each.name: each.max_version_level for each in finalized}

    @staticmethod
    def _lower_version(refusal: RawResponse) -> int:
        """Return the highest ApiVersions version in a broker's refusal, 0 if it has none or cannot be decoded."""
        try:
            response = decode_response(ApiKey.API_VERSIONS, 0, refusal.frame, refusal.offset)
        except KafkaError:
            # librdkafka's mock sends this error in bytes that no client can read, librdkafka included.
            return 0
        return next((int(key.max_version) for key in response.api_keys if key.api_key == ApiKey.API_VERSIONS), 0)

    # ---- reading ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        limit_unsent(self._transport, _WRITE_HIGH_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._filled += nbytes
            self._take_frames()
            return
        self._large_filled += nbytes
        if self._large_filled == len(self._large):
            frame, self._large = self._large, None
            self._answered(frame)

    def _take_frames(self) -> None:
        """Complete requests with the whole frames in the buffer, and make room for the rest of a partial one."""
        buffer, start, end = self._buffer, 0, self._filled
        while end - start >= _LENGTH.size and not self.closed:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if not _LENGTH.size <= size <= self._max_response_bytes:
                self.close(_not_kafka(bytes(buffer[start : start + 5])) or f"it sent a frame of {size:,} bytes")
                return
            body = start + _LENGTH.size
            if body + size <= end:
                start = body + size
                self._answered(bytes(buffer[body:start]))
                continue
            if size >= _LARGE_FRAME_BYTES:
                self._large = memoryview(bytearray(size))
                self._large_filled = end - body
                self._large[: end - body] = buffer[body:end]
                start = end
            break
        buffer[: end - start] = bytes(buffer[start:end])
        self._filled = end - start

    def _answered(self, frame: bytes | memoryview) -> None:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            self.close(f"it sent a response to request {correlation_id}, which was not sent")
            return
        pending.timer.cancel()
        self.is_late = False
        if pending.future.done():
            return
        try:
            _, offset = decode_response_header(pending.api_key, pending.version, frame)
        except (KafkaError, IndexError) as error:
            self._pending[correlation_id] = pending
            self.close(f"its {pending.api_key.name} response is malformed ({error})")
            return
        pending.future.set_result(RawResponse(frame, offset, pending.version))

    # ---- closing ------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self._when_writable is not None:
            self._when_writable()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)
        self.tls_error = exc if isinstance(exc, ssl.SSLError) else None
        reason = f"the connection was lost ({exc})" if exc else "it closed the connection"
        if any(each.api_key == ApiKey.API_VERSIONS for each in self._pending.values()):
            has_tls = self._transport is not None and self._transport.get_extra_info("sslcontext") is not None
            why = "requires a client certificate that it trusts: set ssl.keystore.location" if has_tls else _EXPECTS_TLS
            reason += f" before it answered ApiVersions: it is not a Kafka broker, or {why}"
        elif self._versions and exc is None and any(map(self._is_first, self._pending)):
            reason += " at the first request: it may expect SASL (set security.protocol to SASL_PLAINTEXT or SASL_SSL)"
        self._fail(reason)

    def _is_first(self, correlation_id: int) -> bool:
        return correlation_id <= _FIRST_REQUESTS and self._pending[correlation_id].api_key not in AUTHENTICATION

    def close(self, reason: str = "the client is closed", *, is_refused: bool = False) -> None:
        """Close the connection now; requests in flight fail with `reason`. If `is_refused`, wait for nothing of TLS."""
        silent = bool(self._pending) or is_refused
        self._fail(reason)
        if self._transport is not None:
            # With requests in flight, unsent data is dropped, as the broker may never read it; otherwise it is sent.
            # TLS would wait for the broker to end the connection, for which an event loop that ends has no time.
            silent |= not self._has_posted and self._transport.get_extra_info("sslcontext") is not None
            self._transport.abort() if silent else self._transport.close()

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback()` each time the socket takes data again. Replaces an earlier callback."""
        self._when_writable = callback

    def on_late(self, callback: Callable[[], None]) -> None:
        """Call `callback()` every `LATE_MS` for each response that is late, of requests sent from now on."""
        self._when_late = callback

    def on_close(self, callback: Callable[[object], object]) -> None:
        """Call `callback` when the connection is closed, for any reason; its argument, a future, has no meaning."""
        self._closed.add_done_callback(callback)

    def _overdue(self, correlation_id: int, waited_ms: int, limit_ms: int) -> None:
        pending = self._pending[correlation_id]
        if waited_ms >= limit_ms:
            probe("wire: a request has no response in time")
            self.close(f"it did not answer {pending.api_key.name} within {limit_ms} ms")
            return
        more_ms = min(LATE_MS, limit_ms - waited_ms)
        pending.timer = self._loop.call_later(
            more_ms / 1000, self._overdue, correlation_id, waited_ms + more_ms, limit_ms
        )
        self.is_late = True
        late_ms = waited_ms - max(limit_ms - self._request_timeout_ms, 0)
        if 0 <= late_ms - WAITING_LOG_S * 1000 < LATE_MS:
            waiting_log.info("broker %s has not answered %s yet", self.address, pending.api_key.name)
        if self._when_late is not None:
            self._when_late()

    def _fail(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._reason = reason
        _log.debug("broker %s: %s", self.address, reason)
        pending, self._pending = self._pending, {}
        for each in pending.values():
            each.timer.cancel()
            if not each.future.done():
                each.future.set_exception(self._unavailable())
        self._closed.set_result(None)

    def _unavailable(self) -> UnavailableError:
        return UnavailableError(f"broker {self.address}: {self._reason}")


async def open_connection(
    runtime: Runtime,
    host: str,
    port: int,
    *,
    client_id: str,
    request_timeout_ms: int,
    setup_timeout_ms: int,
    max_response_bytes: int,
    negotiate: bool = True,
    unlisted: Collection[int] = (),
    security: ClientSecurity = NO_SECURITY,
) -> ClientConnection:
    """Connect, negotiate versions, and authenticate. Raise `UnavailableError` on failure or after `setup_timeout_ms`.

    Raise `AuthenticationError` if the broker's certificate or the client's credentials are refused.
    Without `negotiate`, and without SASL, no versions are known, and only `exchange` and `post` can be used. `unlisted`
    are APIs that the broker serves although ApiVersions does not list them.
    """
    address = address_text(host, port)
    connection: ClientConnection | None = None
    opening = ClientConnection(
        address,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        max_response_bytes=max_response_bytes,
        prove=security.prove,
    )
    try:
        async with asyncio.timeout(setup_timeout_ms / 1000):
            _, connection = await runtime.network.connect(lambda: opening, host, port, tls=security.tls)
            if negotiate or security.login is not None:
                await connection.negotiate(unlisted)
            if security.login is not None:
                await start_session(connection, security.login)
    except TimeoutError:
        if connection is None:
            hint = f": if its port has no TLS, {_SET_PLAIN}" if security.tls is not None else ""
            raise UnavailableError(f"broker {address}: no connection within {setup_timeout_ms} ms{hint}") from None
        connection.close()
        raise UnavailableError(
            f"broker {address}: it did not answer ApiVersions within {setup_timeout_ms} ms: it is too slow, is not "
            f"a Kafka broker, or {_EXPECTS_TLS}"
        ) from None
    except ssl.SSLError as error:
        raise AuthenticationError(f"broker {address}: {_tls_reason(error)}") from error
    except OSError as error:
        if connection is not None:
            connection.close()
        reason = _reason(error)
        if security.tls is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError):
            reason = f"it closed the connection in the TLS handshake: if its port has no TLS, {_SET_PLAIN}"
        raise UnavailableError(f"broker {address}: {reason}") from error
    except BaseException as error:
        if connection is not None:
            connection.close(is_refused=True)
            if connection.tls_error is not None and isinstance(error, UnavailableError):
                raise AuthenticationError(f"broker {address}: {_tls_reason(connection.tls_error)}") from error
        raise
    finally:
        if connection is None:  # its handshake may be done all the same
            opening.close("it was not opened", is_refused=True)
    return connection


@contextlib.contextmanager
def log_waiting(what: str, *, wanted: bool) -> Iterator[None]:
    """Write to `waiting_log`, if `wanted`, what is waited for, if the block takes longer than `WAITING_LOG_S`."""
    timer = asyncio.get_running_loop().call_later(WAITING_LOG_S, waiting_log.info, "waiting for %s", what)
    if not wanted:
        timer.cancel()
    try:
        yield
    finally:
        timer.cancel()


def _reason(error: OSError) -> str:
    """Return the cause without the address, such as "connection refused"."""
    return "connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or str(error)


def _tls_reason(error: ssl.SSLError) -> str:
    """Return why a TLS handshake failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted: {error.verify_message}; set ssl.truststore.location to the certificate "
            "of the authority that signed it, and connect to a name that the certificate has"
        )
    if error.reason in {"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}:
        return f"it does not speak TLS on this port: {_SET_PLAIN}"
    if "ALERT" in (error.reason or ""):
        return f"it ended TLS ({error.reason}): set ssl.keystore.location to a certificate of the client that it trusts"
    return f"the TLS handshake failed: {error.reason or error}"


def _not_kafka(first_bytes: bytes) -> str:
    """Return a text about a server that sends these bytes instead of a response's length; empty if unknown."""
    if first_bytes[:2] in {b"\x15\x03", b"\x16\x03"}:
        return f"it {_EXPECTS_TLS}"
    if first_bytes[:4] in {b"HTTP", b"SSH-"}:
        return f"it is not a Kafka broker: it answers in {first_bytes[:4].decode().rstrip('-')}"
    return ""


def _import_error(api_key: ApiKey, error: Exception) -> Exception:
    """Return `UnavailableError` if a codec cannot be imported for lack of file descriptors, else `error` itself."""
    if is_out_of_descriptors(error):
        return UnavailableError(f"{api_key.name} cannot be encoded or decoded now: {error}")
    return error
