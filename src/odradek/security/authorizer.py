"""The interface of an authorizer: which principal may do which operation on which resource (KIP-50, KIP-504)."""

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from odradek.security.operations import AclOperation
from odradek.security.principal import Principal

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class ResourceType(IntEnum):
    """A type of resources by its number on the wire."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """A type of resource patterns by its number on the wire (KIP-290)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class ResourcePattern(NamedTuple):
    """The resources of one type with this name or, with PREFIXED, with names that start with it."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class Action(NamedTuple):
    """An operation on a resource that a request needs."""

    operation: AclOperation
    resource_pattern: ResourcePattern


class AuthorizationResult(Enum):
    """The decision on one action."""

    ALLOWED = "ALLOWED"
    DENIED = "DENIED"


class AuthorizableRequestContext(Protocol):
    """The part of a request that an authorizer may use, apart from the actions."""

    @property
    def principal(self) -> Principal: ...

    @property
    def client_host(self) -> str: ...

    @property
    def listener(self) -> str: ...


class Authorizer(Protocol):
    """Decides which actions are allowed. The methods are called on the broker's event loop and must not block."""

    @property
    def version(self) -> int:
        """A number that changes whenever any decision may have changed.

        While it stays the same, a broker reuses decisions and responses that depend on them.
        """

    def authorize(
        self, context: AuthorizableRequestContext, actions: Sequence[Action]
    ) -> Sequence[AuthorizationResult]:
        """Return the decision on each action, in their order."""

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        """Return ALLOWED if the principal may do `operation` on at least one resource of the type (KIP-679)."""


class AllowAllAuthorizer:
    """Allows all actions: the authorizer of a broker without ACLs."""

    version = 0

    def authorize(
        self, context: AuthorizableRequestContext, actions: Sequence[Action]
    ) -> Sequence[AuthorizationResult]:
        del context
        return [AuthorizationResult.ALLOWED] * len(actions)

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        del context, operation, resource_type
        return AuthorizationResult.ALLOWED


ALLOW_ALL: Final = AllowAllAuthorizer()
