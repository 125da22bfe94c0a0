"""Admission of requests: an asynchronous check, and authorization.

```
Dispatcher.serve ─▶ is_due           an asynchronous check holds a request: meanwhile its connection serves nothing,
                                     and then calls `is_due` with the same request again
                 ─▶ check_request    the API's permission on the whole request (`broker.apis`), the check's error
handler          ─▶ check, denied    the API's permissions on each topic, group and so on that the request names
```
Three shortcuts reuse decisions while `authorizer.version` stays the same: a session remembers what was allowed
(`Session.allowed`), the fast path of Produce, and cached responses, for the same `RequestContext.visibility`.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from odradek.broker.apis import APIS, Permission
from odradek.broker.turns import Steps
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.runtime.rate_limited_log import RateLimitedLog
from odradek.security import (
    CLUSTER_NAME,
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    AclOperation,
    Action,
    AllowAllAuthorizer,
    AuthorizationResult,
    Authorizer,
    PatternType,
    ResourcePattern,
    ResourceType,
    kafka_name,
)

if TYPE_CHECKING:
    from odradek.broker.security.context import RequestContext, Session

_log = logging.getLogger("odradek.authorizer")
_MOST_LINES: Final = 10
"""Refusals of one principal and operation that are logged in a minute."""
_MOST_REMEMBERED: Final = 1000
"""Limit of the names that a session remembers for an API's operation; a client may name topics that do not exist."""
_NAMES_AT_ONCE: Final = 64
_NONE: Final[frozenset[str]] = frozenset()
_OPERATIONS: Final = {
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: GROUP_OPERATIONS,
    ResourceType.CLUSTER: CLUSTER_OPERATIONS,
}
_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}


class RequestVerifier(Protocol):
    """A check of requests that has to wait for another broker, for instance of a transaction (KIP-890).

    Produce requests of the fast path, which belong to no transaction, are not checked.
    """

    @property
    def apis(self) -> Collection[int]:
        """The APIs whose requests are checked."""

    def verify(self, context: "RequestContext", frame: memoryview) -> Coroutine[Any, Any, None] | None:
        """Return None if there is nothing to wait for, else a coroutine that may refuse by raising `KafkaError`.

        `frame` is valid during this call only.
        """


class Admission:
    """The authorizer and the asynchronous check of one broker."""

    def __init__(self, authorizer: Authorizer, *, verifier: RequestVerifier | None = None) -> None:
        self.authorizer = authorizer
        self.allows_all = isinstance(authorizer, AllowAllAuthorizer)
        """Whether everything is allowed, so that the authorizer, a large part of a fetch's cost, is not called."""
        self.postponed_apis = frozenset(() if verifier is None else verifier.apis)
        """The APIs for whose requests `is_due` has to be called."""
        self.may_refuse = not self.allows_all or bool(self.postponed_apis - {ApiKey.PRODUCE})
        """Whether methods other than `is_due` can refuse anything; if not, only the handler of Produce calls them."""
        self._refusals = RateLimitedLog(_log, most_lines=_MOST_LINES)
        self._verifier = verifier
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- when a request is served -------------------------------------------------------------------------------

    def is_due(self, context: "RequestContext", frame: memoryview) -> bool:
        """Return whether the request may be served now. If not, hold its connection, which tries again later."""
        session = context.session
        task = session.postponed
        if task is None:
            session.refusal = None
            check = None if self._verifier is None else self._verifier.verify(context, frame)
            if check is None:
                return True
            task = session.postponed = asyncio.get_running_loop().create_task(check)
            self._tasks.add(task)
            task.add_done_callback(partial(self._resume, session))
        if not task.done():
            session.connection.hold()
            return False
        session.postponed = None
        error = task.exception()
        if error is not None and not isinstance(error, KafkaError):
            raise error
        session.refusal = error
        return True

    def _resume(self, session: "Session", task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a connection that is closed meanwhile does not read it
            session.connection.release()

    def stop(self) -> None:
        """Cancel the checks of waiting requests."""
        for task in tuple(self._tasks):
            task.cancel()

    # ---- whether a request is served ----------------------------------------------------------------------------

    def check_request(self, context: "RequestContext", message: object) -> None:
        """Raise `KafkaError` if the asynchronous check refused the request, or its principal may not send it."""
        refusal, context.session.refusal = context.session.refusal, None
        if refusal is not None:
            raise refusal
        if self.allows_all:
            return
        permissions = APIS[context.api_key].request_permissions(context.api_version)
        if not permissions:
            return
        group_id = str(getattr(message, "group_id", ""))
        actions = [
            _action(each, CLUSTER_NAME if each.resource_type is ResourceType.CLUSTER else group_id)
            for each in permissions
        ]
        if AuthorizationResult.ALLOWED not in self.authorizer.authorize(context, actions):
            self._log_refusals(context, actions[-1:])
            raise KafkaError(_ERRORS[permissions[-1].resource_type])

    def allows(
        self,
        context: "RequestContext",
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        quietly: bool = False,
    ) -> bool:
        """Return whether the principal may do the operation on the resource; log a refusal unless `quietly`."""
        permission = Permission(operation, resource_type)
        return self.allows_all or not self._denied(context, permission, (name,), quietly=quietly)

    def allows_any(self, context: "RequestContext", operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether the principal may do the operation on at least one resource of the type."""
        if self.allows_all:
            return True
        _check_declared(context, Permission(operation, resource_type))
        result = self.authorizer.authorize_by_resource_type(context, operation, resource_type)
        if result is not AuthorizationResult.ALLOWED:
            self._log_refusals(context, [Action(operation, ResourcePattern(resource_type, "*", PatternType.ANY))])
        return result is AuthorizationResult.ALLOWED

    def denied(
        self,
        context: "RequestContext",
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        quietly: bool = False,
    ) -> Steps[frozenset[str]]:
        """Return those of `names` on which the principal may not do the operation; repeated names are checked once.

        Refusals are logged unless `quietly`, for names that the client did not ask for, and for one of several ways.
        """
        if self.allows_all:
            return _NONE
        refused: set[str] = set()
        each = iter(dict.fromkeys(names))
        while some := tuple(islice(each, _NAMES_AT_ONCE)):
            refused |= self._denied(context, Permission(operation, resource_type), some, quietly=quietly)
            yield 2 * len(some)
        return frozenset(refused)

    def _denied(
        self, context: "RequestContext", permission: Permission, names: Sequence[str], *, quietly: bool
    ) -> AbstractSet[str]:
        allowed = self._allowed(context.session, (context.api_key, *permission))
        if allowed.issuperset(names):
            return _NONE
        _check_declared(context, permission)
        actions = [_action(permission, name) for name in names]
        results = zip(names, actions, self._authorize(context, actions), strict=True)
        refused = {name: action for name, action, is_allowed in results if not is_allowed}
        if refused and not quietly:
            self._log_refusals(context, islice(refused.values(), _MOST_LINES))
        if len(allowed) + len(names) <= _MOST_REMEMBERED:
            allowed.update(name for name in names if name not in refused)
        return refused.keys()

    def _allowed(self, session: "Session", key: tuple[int, AclOperation, ResourceType]) -> set[str]:
        """Return the names on which the session's principal may do what `key` says, as far as that was decided."""
        version = session.principal, self.authorizer.version
        if session.allowed_version != version:
            session.allowed_version = version
            session.allowed.clear()
        return session.allowed.setdefault(key, set())

    def authorized_operations(self, context: "RequestContext", resource_type: ResourceType, name: str) -> int:
        """Return the bit field of the operations that the principal may do on the resource (KIP-430)."""
        every = _OPERATIONS[resource_type]
        if self.allows_all:
            return every
        operations = [each for each in AclOperation if every >> each & 1]
        results = self._authorize(context, [_action(Permission(each, resource_type), name) for each in operations])
        return sum(1 << each for each, allowed in zip(operations, results, strict=True) if allowed)

    def log_change(self, context: "RequestContext", what: str) -> None:
        """Log a change of users, quotas or ACLs for audits, each one; `what` has no secrets."""
        text = "Principal = %s from host = %s has changed %s by request = %s"
        api = kafka_name(ApiKey(context.api_key))
        _log.info(text, context.principal, context.client_host, what, api)

    def _log_refusals(self, context: "RequestContext", actions: Iterable[Action]) -> None:
        """Log refused actions in Kafka's words; and what to do if the client is a broker."""
        for operation, (kind, name, pattern_type) in actions:
            is_of_broker = operation is AclOperation.CLUSTER_ACTION
            self._refusals.log(
                (operation, kind),
                logging.WARNING if is_of_broker else logging.INFO,
                "Principal = %s is Denied operation = %s from host = %s on resource = %s:%s:%s for request = %s%s",
                context.principal,
                kafka_name(operation),
                context.client_host,
                kafka_name(kind),
                pattern_type.name,
                name,
                kafka_name(ApiKey(context.api_key)),
                "; if it is a broker, add its principal to super.users" if is_of_broker else "",
                owner=context.principal,
            )

    def _authorize(self, context: "RequestContext", actions: Sequence[Action]) -> list[bool]:
        results = self.authorizer.authorize(context, actions) if actions else ()
        return [each is AuthorizationResult.ALLOWED for each in results]


def authorization_error(resource_type: ResourceType) -> KafkaError:
    return KafkaError(_ERRORS[resource_type])


def _action(permission: Permission, name: str) -> Action:
    return Action(permission.operation, ResourcePattern(permission.resource_type, name))


def _check_declared(context: "RequestContext", permission: Permission) -> None:
    """Assert that the API's entry in `APIS` has this permission."""
    assert permission in APIS[context.api_key].items, permission
