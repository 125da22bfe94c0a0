"""The context of a request: its header, its connection, its principal, and what the principal may do."""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from odradek.broker.security.admission import Admission, authorization_error
from odradek.broker.security.session_authentication import SessionAuthentication
from odradek.broker.turns import Steps
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.primitives import Meter
from odradek.security import ANONYMOUS, CLUSTER_NAME, AclOperation, Principal, ResourceType
from odradek.wire.connection import Connection
from odradek.wire.reply import Reply

_ENTRY_BYTES: Final = 1024
"""Memory for one array item of a decoded request, however few bytes it has on the wire."""
_USUAL_ENTRIES: Final = 16
"""Requests with no more array items than this cost little more than their connection."""


class Session(Struct, kw_only=True):
    """The state of one connection: its listener, client and principal, and the admission of its requests."""

    connection: Connection
    listener: str
    client_host: str
    admission: Admission
    principal: Principal = ANONYMOUS
    authentication: SessionAuthentication | None = None
    """The SASL exchange, on a listener with SASL."""
    client_software: str = ""
    """Name and version, if the client sent them in ApiVersions (KIP-511)."""
    fast_path: Callable[[memoryview], Reply | None] | None = None
    """Called with a frame before its body is decoded. Returns None if the handler has to serve the frame."""
    allowed: dict[tuple[int, AclOperation, ResourceType], set[str]] = field(default_factory=dict)
    """Resources by API, operation and type on which the principal may do the operation (`Admission.denied`)."""
    allowed_version: tuple[Principal, int] | None = None
    """The principal and the version of the authorizer that `allowed` is for."""
    postponed: "asyncio.Task[None] | None" = None
    """The check that the next request waits for (`Admission.is_due`)."""
    refusal: KafkaError | None = None
    """The asynchronous check's error for the current request."""
    verified: tuple[ProduceRequest, Meter] | None = None
    """The current request as it was decoded for its verification, for the handler of Produce."""
    long_response: asyncio.Semaphore | None = None
    """The semaphore that the current request has taken to build a long response (`Dispatcher.begin_long`)."""
    is_large: bool = False
    """Whether the current request has taken `Dispatcher.few_large`."""
    mutation_throttle_s: float = 0.0
    """The throttle time of the current request for its mutations of topics (`ClientQuotas.take_mutations`)."""


class RequestContext(NamedTuple):
    """The header of a request, and the session of its connection."""

    header: RequestHeader
    session: Session

    @property
    def api_key(self) -> int:
        return self.header.api_key

    @property
    def api_version(self) -> int:
        """The version that request and response are written in."""
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """The client id; empty if the request has none."""
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        return self.session.client_host

    @property
    def listener(self) -> str:
        return self.session.listener

    @property
    def principal(self) -> Principal:
        return self.session.principal

    @property
    def client_key(self) -> Hashable:
        """Return what all connections of a client share: its principal, or its address if it is anonymous."""
        return self.client_host if self.principal == ANONYMOUS else self.principal

    # ---- what the principal may do; see `Admission` -------------------------------------------------------------

    def log_change(self, what: str) -> None:
        """Log that the principal has changed `what`, which has no secrets."""
        self.session.admission.log_change(self, what)

    def check_request(self, message: object) -> None:
        """Raise `KafkaError` if the request as a whole is refused."""
        self.session.admission.check_request(self, message)

    def check_has_acls(self) -> None:
        """Raise `KafkaError` SECURITY_DISABLED if the broker has no authorizer."""
        if self.session.admission.allows_all:
            text = "No Authorizer is configured on the broker: set authorizer.class.name"
            raise KafkaError(ErrorCode.security_disabled, text)

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        quietly: bool = False,
    ) -> bool:
        """Return whether the principal may do the operation on the resource; log a refusal unless `quietly`."""
        return self.session.admission.allows(self, operation, resource_type, name, quietly=quietly)

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether the principal may do the operation on at least one resource of the type."""
        return self.session.admission.allows_any(self, operation, resource_type)

    def check(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise the resource type's authorization error if the principal may not do the operation."""
        if not self.session.admission.allows(self, operation, resource_type, name):
            raise authorization_error(resource_type)

    def denied(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, quietly: bool = False
    ) -> Steps[frozenset[str]]:
        """Return those of `names` on which the principal may not do the operation; log them unless `quietly`."""
        return self.session.admission.denied(self, operation, resource_type, names, quietly=quietly)

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of the operations that the principal may do on the resource (KIP-430)."""
        return self.session.admission.authorized_operations(self, resource_type, name)

    @property
    def visibility(self) -> Hashable:
        """The values that the authorizer's decisions depend on, as a part of cache keys; None if all is allowed."""
        admission = self.session.admission
        return None if admission.allows_all else (self.principal, self.client_host, admission.authorizer.version)


class WhenDone(NamedTuple):
    """A handler's result for later: when `future` is done, `message(future)` returns the response.

    Cheaper than a coroutine, whose task would double the time of a heartbeat or a commit.
    """

    future: "asyncio.Future[Any]"
    message: "Callable[[asyncio.Future[Any]], dict[str, Any]]"


def cluster_operations(context: RequestContext) -> int:
    """Return the bit field of authorized cluster operations; 0 without the permission to describe the cluster."""
    if not context.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, quietly=True):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER)


def decoded_bytes(meter: Meter) -> int:
    """Estimate how many bytes the request's array items take in memory, for `PendingReply.decoded_bytes`."""
    return max(meter.taken - _USUAL_ENTRIES, 0) * _ENTRY_BYTES
