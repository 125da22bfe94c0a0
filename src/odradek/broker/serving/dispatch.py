"""The dispatcher: it calls the handler of a request's API, and makes a reply of the handler's result.

No request holds the event loop: bodies above `LARGE_BYTES` are decoded, and wide responses encoded, by the worker, and
a handler that is a generator works in turns (`broker.turns`). Smaller requests are served at once.
A handler is imported with its codecs when its API is first requested. A malformed request, a bug in a handler, or an
import without a free file descriptor is logged and closes the request's connection. No exception of a handler leaves
this module. The next request repeats a failed import.
"""

import asyncio
import importlib
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping
from functools import partial
from inspect import isawaitable
from types import GeneratorType
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from odradek.broker.apis import APIS, AUTHENTICATION, PIPELINED, SWITCHED_OFF, Api, Trait
from odradek.broker.counters import BrokerCounters
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.security.admission import Admission, authorization_error
from odradek.broker.security.context import RequestContext, Session, WhenDone, decoded_bytes
from odradek.broker.security.quotas.client_quotas import ClientQuotas
from odradek.broker.security.request_proofs import RequestProofs
from odradek.broker.serving.responses import count_errors, message_frame, names_entries, refusal
from odradek.broker.turns import LARGE_BYTES, TURN, Steps, in_turns, one_turn
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import CONTROLLER_VERSIONS, ApiKey
from odradek.protocol.messages.headers import RequestHeader, decode_request_header
from odradek.protocol.messages.message_codec import decode_request as decode
from odradek.protocol.messages.message_codec import metered_request_decoder, response_encoder
from odradek.protocol.primitives import Meter
from odradek.runtime.shortages import is_out_of_descriptors
from odradek.runtime.threads import Worker
from odradek.security import ResourceType
from odradek.wire.connection import Connection
from odradek.wire.reply import LATER, NO_REPLY, Buffers, PendingReply, Reply

T = TypeVar("T")
MOST_LARGE: Final = 8
_LONGEST_CLIENT_ID: Final = 100
"""Limit of a client id's characters in a log line."""
Handler = Callable[[Any, RequestContext, memoryview], Reply]
"""Called with the broker, a request's context and its frame."""
HANDLERS: Final = "odradek.broker.handlers"
_NO_DESCRIPTOR: Final = "the process can open no more files (ulimit -n)"


class Dispatcher:
    """The handlers, imported as requests come, and the tasks of requests that are not answered yet.

    `broker` is passed to the handlers and not used here. `is_own_command` returns whether the body of a controller's
    command has this broker's epoch. Requests wait until `serve_clients` is called, commands until `serve_controller`.
    """

    def __init__(
        self,
        broker: object,
        metadata: MetadataCache,
        counters: BrokerCounters,
        admission: Admission,
        quotas: ClientQuotas,
        worker: Worker,
        proofs: RequestProofs,
        *,
        is_own_command: Callable[[bytes], bool],
    ) -> None:
        self._broker = broker
        self.most_request_entries = metadata.config.most_request_entries
        self.counters = counters
        self.admission = admission
        self._quotas = quotas
        self.worker = worker
        self.proofs = proofs
        self.is_own_command = is_own_command
        self._serves_controller = False
        self._serves_clients = False
        self.counts_errors = False
        self._handlers: dict[tuple[int, int], Handler] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.few_large = asyncio.Semaphore(MOST_LARGE)
        """Taken by large requests while their handlers work, not while they wait for an event such as a rebalance."""
        self._one_large = asyncio.Lock()
        self._few: WeakValueDictionary[tuple[Hashable, Hashable], asyncio.Semaphore] = WeakValueDictionary()

    def serve_controller(self) -> None:
        """Serve the controller's commands from now on."""
        self._serves_controller = True

    def serve_clients(self) -> None:
        """Serve every request from now on."""
        self._serves_clients = True

    def count_errors(self) -> None:
        """Count the error codes in responses from now on."""
        self.counts_errors = True

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        """Serve one frame as `wire.Service` says. Requests of `PIPELINED` APIs may overlap, others are served alone."""
        session = connection.session
        assert isinstance(session, Session)
        header: RequestHeader | None = None
        try:
            # Here the fast path saves also the header's decoding, a fifth of its time.
            if session.fast_path is not None and (reply := session.fast_path(frame)) is not None:
                return reply
            header = decode_request_header(frame)
            if not alone and header.api_key not in PIPELINED:
                return LATER
            if session.authentication is not None and not session.authentication.serves(header.api_key):
                raise KafkaError(ErrorCode.illegal_sasl_state, "the client has to authenticate, at first or again")
            if not (self._serves_clients or (self._serves_controller and _is_of_controller(header.api_key, session))):
                connection.hold()
                return LATER
            context = RequestContext(header, session)
            if header.api_key in self.admission.postponed_apis or self._quotas.are_set:
                return self._serve_guarded(context, frame)
            handler = self._handlers.get((header.api_key, header.api_version)) or self._find_handler(header, session)
            return handler(self._broker, context, frame)
        except KafkaError as error:
            connection.close(f"{_describe(header)}{error}")
        except Exception as error:
            if is_out_of_descriptors(error):
                connection.close(f"{_describe(header)}{_NO_DESCRIPTOR}: {error}")
            else:
                connection.exception(f"{_describe(header)}failed", error)
        return NO_REPLY

    def _serve_guarded(self, context: RequestContext, frame: memoryview) -> Reply:
        """Serve a request that waits for the end of its connection's throttling and for admission."""
        session, quotas, size = context.session, self._quotas, len(frame)
        if quotas.is_muted(session.connection):
            session.connection.hold()
            return LATER
        if context.api_key in self.admission.postponed_apis and not self.admission.is_due(context, frame):
            return LATER
        charge = quotas.begin(context, size)
        key = context.api_key, context.api_version
        handler = self._handlers.get(key) or self._find_handler(context.header, session)
        reply = handler(self._broker, context, frame)
        return reply if charge is None or reply is LATER else charge.apply(reply)

    async def handle_large(
        self, context: RequestContext, meter: Meter, decoding: Callable[[], T], begin: Callable[[T], Any]
    ) -> Any:
        """Decode a request beside the event loop, pass it to `begin`, and return what its steps or coroutine return.

        Requests are decoded and begun one at a time: items may take fifty times their bytes.
        """
        await self.few_large.acquire()
        context.session.is_large = True
        try:
            async with self._one_large:
                if not context.session.connection.is_open:
                    raise KafkaError(ErrorCode.network_exception, "the connection was closed before its turn")
                message = await self.worker.submit(decoding)
                context.session.connection.count_decoded(decoded_bytes(meter))
                answer = begin(message)
                if isinstance(answer, GeneratorType):
                    answer = await in_turns(answer)
            return await answer if isawaitable(answer) else answer
        finally:
            self._end_large(context.session)

    def _end_large(self, session: Session) -> None:
        """Let another large request begin, if the session's current one has not done so yet."""
        if session.is_large:
            session.is_large = False
            self.few_large.release()

    def client_semaphore(self, kind: Hashable, context: RequestContext, most: int = MOST_LARGE) -> asyncio.Semaphore:
        """Return the semaphore of a client's work of one kind, so that no client waits for the work of others."""
        return self._few.setdefault((kind, context.client_key), asyncio.Semaphore(most))

    async def begin_long(self, context: RequestContext) -> None:
        """Wait until the request may build a long response; `answer_later` lets another one begin.

        A client builds at most `MOST_LARGE` at once for an API, and none while unsent responses take too much memory.
        """
        if context.session.long_response is None:
            self._end_large(context.session)  # large requests of all clients must not wait for this one's
            few = self.client_semaphore(context.api_key, context)
            await few.acquire()
            context.session.long_response = few
            await context.session.connection.response_room()

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work for a request as a task, which is cancelled when the broker stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def answer_later(
        self,
        context: RequestContext,
        answer: Coroutine[Any, Any, Buffers],
        meter: Meter,
        *,
        handler: Coroutine[Any, Any, Any] | Steps[Any] | None = None,
    ) -> PendingReply:
        """Run `answer` as a task, and return a reply for its result. Later requests of the connection wait for it.

        `handler` is the coroutine that `answer` awaits: it is closed if the task is cancelled before its first step.
        `meter` has counted the request's array items; a small item takes fifty times its size in memory.
        """
        task = self.run(answer)
        reply = _Answer(meter, task if Trait.ENDS_WITH_CONNECTION in APIS[context.api_key].traits else None)

        def finish(task: asyncio.Task[Buffers]) -> None:
            if handler is not None:
                handler.close()
            if (few := context.session.long_response) is not None:
                context.session.long_response = None
                few.release()
                if not task.cancelled() and task.exception() is None:
                    context.session.connection.count_response(sum(map(len, task.result())))
            _settle(context, reply, task.result)

        task.add_done_callback(finish)
        return reply

    def kill(self) -> None:
        """Cancel the tasks of unanswered requests, and the checks of `Admission`."""
        self.admission.stop()
        for task in tuple(self._tasks):
            task.cancel()

    async def stop(self) -> None:
        """Cancel the tasks of unanswered requests, and the checks of `Admission`; wait for the tasks."""
        tasks = tuple(self._tasks)
        self.kill()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find_handler(self, header: RequestHeader, session: Session) -> Handler:
        api = APIS.get(header.api_key)
        if api is not None and header.api_version in api.served:
            module = _import_handler(api)
            is_raw = Trait.RAW in api.traits
            handler = module.handle if is_raw else _MessageHandler(self, api, header.api_version, module.handle)
            self._handlers[header.api_key, header.api_version] = handler
            return handler
        if header.api_key in SWITCHED_OFF and header.api_version in SWITCHED_OFF[header.api_key].served:
            off: Handler = importlib.import_module(f"{HANDLERS}.switched_off").handle
            self._handlers[header.api_key, header.api_version] = off
            return off
        if api is not None and api.key == ApiKey.API_VERSIONS:
            newer: Handler = _import_handler(api).handle_unsupported_version
            return newer
        raise KafkaError(ErrorCode.unsupported_version, _unserved(api, header, session))


class _Answer(PendingReply):
    """A reply that later requests of the connection wait for. `task` ends with the connection."""

    exclusive = True

    def __init__(self, meter: Meter, task: asyncio.Task[Any] | None = None) -> None:
        self.decoded_bytes = decoded_bytes(meter)
        self._task = task

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()

    force_complete = abandon


class _MessageHandler:
    """Decodes the frames of one API and version, authorizes the requests, and calls `handle` with the messages.

    If the header decides, a request is authorized, and its proof checked, before its body is decoded.
    """

    def __init__(self, dispatcher: Dispatcher, api: Api, version: int, handle: Callable[..., Any]) -> None:
        self._dispatcher = dispatcher
        self._key, self._version = api.key, version
        self._is_command = api.key in CONTROLLER_VERSIONS
        self._is_read = Trait.ENDS_WITH_CONNECTION in api.traits
        self._handle = handle
        self._is_guarded = dispatcher.admission.may_refuse
        self._is_early = self._is_guarded and api.is_decided_by_header(version)
        self._needs_proof = api.is_of_brokers(version)
        metered_request_decoder(api.key, version)
        # At once: a request must not fail for lack of its encoder after it was executed.
        response_encoder(api.key, version)

    def __call__(self, broker: object, context: RequestContext, frame: memoryview) -> Reply:
        dispatcher = self._dispatcher
        body = bytes(frame[context.header.body_offset :])
        is_large = len(body) > LARGE_BYTES
        if self._is_early or self._needs_proof:
            try:
                if self._is_early:
                    context.check_request(None)
                if self._needs_proof and not dispatcher.proofs.admits(
                    context.header, body, listener=context.listener, host=context.client_host
                ):
                    raise authorization_error(ResourceType.CLUSTER)
            except KafkaError as error:
                if is_large:
                    return dispatcher.answer_later(context, self._refuse_large(context, body, error), Meter(0))
                return self._encode(context, self._refusal_of_unread(context, body, error))
        # A controller's command may have an entry for each partition, so it is not limited.
        is_unlimited = self._is_command and dispatcher.is_own_command(body)
        meter = Meter(len(body) if is_unlimited else dispatcher.most_request_entries)
        if is_large:
            return dispatcher.answer_later(context, self._serve_large(broker, context, body, meter), meter)
        message = decode(self._key, self._version, body, meter=meter)
        if self._is_guarded and (refused := self._error(context, message)) is not None:
            return self._encode(context, self._refusal(context, message, refused))
        answer = self._begin(broker, context, message)
        if isinstance(answer, WhenDone):
            future, to_message = answer
            if not future.done():
                reply = _Answer(meter)
                future.add_done_callback(
                    lambda done: _settle(context, reply, lambda: self._encode(context, to_message(done)))
                )
                return reply
            answer = to_message(future)
        if isinstance(answer, dict):
            return self._encode(context, answer)
        return dispatcher.answer_later(context, self._encode_later(context, answer), meter, handler=answer)

    def _error(self, context: RequestContext, message: object) -> KafkaError | None:
        """Return why the request as a whole is refused, which only its body tells; None if it is not."""
        if self._is_guarded and not self._is_early:
            try:
                context.check_request(message)
            except KafkaError as error:
                return error
        return None

    def _begin(self, broker: object, context: RequestContext, message: object) -> Any:
        """Return the response, or what `_encode_later` makes it of."""
        answer = self._handle(broker, context, message)
        if isinstance(answer, GeneratorType):
            done = one_turn(answer)
            return answer if done is None else done[0]
        return answer

    async def _serve_large(self, broker: object, context: RequestContext, body: bytes, meter: Meter) -> Buffers:
        def begin(message: object) -> Any:
            if (error := self._error(context, message)) is not None:
                return self._dispatcher.worker.submit(partial(self._refusal, context, message, error))
            return self._begin(broker, context, message)

        decoding = partial(decode, self._key, self._version, body, meter=meter)
        return await self._encode_later(context, await self._dispatcher.handle_large(context, meter, decoding, begin))

    # ---- responses ----------------------------------------------------------------------------------------------

    def _encode(self, context: RequestContext, answer: dict[str, object]) -> Buffers:
        if self._dispatcher.counts_errors:
            count_errors(self._dispatcher.counters, context.header, answer)
        return message_frame(context.header, answer)

    async def _encode_later(self, context: RequestContext, answer: Any) -> Buffers:
        if isinstance(answer, Coroutine):
            answer = await answer
        if isinstance(answer, GeneratorType):
            if (done := one_turn(answer)) is None and self._is_read:
                await self._dispatcher.begin_long(context)
            answer = await in_turns(answer) if done is None else done[0]
        if isinstance(answer, WhenDone):
            await asyncio.wait((answer.future,))
            answer = answer.message(answer.future)
        if not is_wide(answer):
            return self._encode(context, answer)
        from odradek.broker.serving.error_responses import error_codes

        buffers, errors = await self._dispatcher.worker.submit(
            lambda: (message_frame(context.header, answer), Counter(error_codes(self._key, self._version, answer)))
        )
        if self._dispatcher.counts_errors:
            for code, count in errors.items():
                self._dispatcher.counters.erred(self._key, code, count)
        return buffers

    def _refusal(self, context: RequestContext, message: object, error: KafkaError) -> dict[str, object]:
        return refusal(context.header, message, error)

    def _refusal_of_unread(self, context: RequestContext, body: bytes, error: KafkaError) -> dict[str, object]:
        """Return the response to an unauthorized request, which is decoded if the response has its entries."""
        message = None
        if names_entries(self._key, self._version):
            message = decode(self._key, self._version, body, meter=Meter(self._dispatcher.most_request_entries))
        return self._refusal(context, message, error)

    async def _refuse_large(self, context: RequestContext, body: bytes, error: KafkaError) -> Buffers:
        answer = await self._dispatcher.worker.submit(lambda: self._refusal_of_unread(context, body, error))
        return await self._encode_later(context, answer)


def is_wide(message: Mapping[str, object]) -> bool:
    """Return whether the lists of a response have more items than are encoded in one turn."""
    left, structs = TURN, [message]
    while structs:
        for value in structs.pop().values():
            if isinstance(value, list | tuple):
                left -= len(value)
                if left < 0:
                    return True
                structs += [each for each in value if isinstance(each, dict)]
    return False


def _is_of_controller(api_key: int, session: Session) -> bool:
    """Return whether a request may be a command of the controller, or its authentication."""
    return api_key in CONTROLLER_VERSIONS or (session.authentication is not None and api_key in AUTHENTICATION)


def _import_handler(api: Api) -> Any:
    return importlib.import_module(f"{HANDLERS}.{api.module}")


def _settle(context: RequestContext, reply: PendingReply, result: Callable[[], Buffers]) -> None:
    """Complete `reply` with the return value of `result`; if that raises, close the connection."""
    try:
        buffers = result()
    except asyncio.CancelledError:
        reply.refuse(f"{_describe(context.header)}given up: the client has closed its side, or the broker stops")
    except KafkaError as error:
        reply.refuse(f"{_describe(context.header)}{error}")
    except Exception as error:
        if is_out_of_descriptors(error):
            reply.refuse(f"{_describe(context.header)}{_NO_DESCRIPTOR}: {error}")
        else:
            context.session.connection.exception(f"{_describe(context.header)}failed", error)
            reply.complete(NO_REPLY)
    else:
        reply.complete(buffers)


def _unserved(api: Api | None, header: RequestHeader, session: Session) -> str:
    """Return why a request has no handler, with its client id and, if known, its client software."""
    if api is None:
        reason = "this broker does not serve this API"
    else:
        reason = f"this broker serves versions {api.served.start} to {api.served.stop - 1} of this API"
    software = session.client_software or "unknown client software"
    return f"{reason}; sent by {software}, client id {(header.client_id or '')[:_LONGEST_CLIENT_ID]!r}"


def _describe(header: RequestHeader | None) -> str:
    if header is None:
        return ""
    name = ApiKey(header.api_key).name if header.api_key in set(ApiKey) else f"API {header.api_key}"
    return f"{name} version {header.api_version}: "
