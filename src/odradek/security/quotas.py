"""The entities that have quotas, Kafka's keys of quotas, and which entity's quota applies to a client (KIP-55).

```
precedence                        clients that share the quota
users/alice/clients/app           each user and client id
users/alice/clients/<default>     each user and client id
users/alice                       each user
users/<default>/clients/app       each user and client id
users/<default>/clients/<default> each user and client id
users/<default>                   each user
clients/app                       each client id
clients/<default>                 each client id
```
Each key is looked up on its own: the first entity that has the key counts.
"""

import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.model import ErrorCode, KafkaError

DEFAULT: Final = ""
"""The name of a default entity; no other entity has an empty name."""
PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
CONTROLLER_MUTATION: Final = "controller_mutation_rate"
CONNECTION_CREATION: Final = "connection_creation_rate"
USER_KEYS: Final = (PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION)
"""The keys of users, client ids, and both."""
IP_KEYS: Final = (CONNECTION_CREATION,)
_LARGEST_INTEGER: Final = {PRODUCE: 2**63 - 1, FETCH: 2**63 - 1, CONNECTION_CREATION: 2**31 - 1}
"""The keys whose values are whole numbers in Kafka, and their limits."""
_ROUNDING: Final = 1e-6
"""How far a value may be from a whole number, as in Kafka."""


class QuotaEntity(NamedTuple):
    """A user, a client id, both, or an IP address; each a name, `DEFAULT`, or None if it is no part of the entity."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the entity may have."""
        return USER_KEYS if self.ip is None else IP_KEYS

    @property
    def parts(self) -> dict[str, str]:
        """The names by Kafka's types."""
        return {kind: name for kind, name in zip(("user", "client-id", "ip"), self, strict=True) if name is not None}

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or '<default>'}" for kind, name in self.parts.items())


SharedBy = tuple[str | None, str | None]
"""The user and the client id whose requests count together; None: any."""


def applicable(limits: Mapping[QuotaEntity, float], user: str, client_id: str) -> tuple[float, SharedBy] | None:
    """Return the limit for a client, and which requests share it; None without a limit. `limits` are those of one key.

    An empty `client_id` has the quotas of default client ids.
    """
    both, only_user, only_client = (user, client_id), (user, None), (None, client_id)
    for entity, shared_by in (
        (QuotaEntity(user, client_id), both),
        (QuotaEntity(user, DEFAULT), both),
        (QuotaEntity(user), only_user),
        (QuotaEntity(DEFAULT, client_id), both),
        (QuotaEntity(DEFAULT, DEFAULT), both),
        (QuotaEntity(DEFAULT), only_user),
        (QuotaEntity(None, client_id), only_client),
        (QuotaEntity(None, DEFAULT), only_client),
    ):
        limit = limits.get(entity)
        if limit is not None:
            return limit, shared_by
    return None


def ip_limit(limits: Mapping[QuotaEntity, float], ip: str) -> float | None:
    """Return the limit for an IP address, its own or the default one."""
    return limits.get(QuotaEntity(ip=ip), limits.get(QuotaEntity(ip=DEFAULT)))


def check_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of `(type, name)` pairs, where None is the default. Raise `KafkaError` INVALID_REQUEST."""
    names: dict[str, str] = {}
    for kind, name in parts:
        field = kind.replace("-", "_")
        if kind not in ("user", "client-id", "ip"):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if field in names:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[field] = DEFAULT if name is None else name
    if not names:
        raise _invalid("Invalid empty client quota entity")
    if "ip" in names and len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"  # as in Kafka
        )
    if names.get("ip"):
        try:
            names["ip"] = str(ipaddress.ip_address(names["ip"]))
        except ValueError:
            raise _invalid(f"{names['ip']} is not a valid IP or resolvable host.") from None
    return QuotaEntity(**names)


def check_key(entity: QuotaEntity, key: str) -> None:
    """Raise `KafkaError` INVALID_REQUEST if entities of this kind have no such quota."""
    if key not in entity.keys:
        raise _invalid(f"Invalid configuration key {key}; quotas of {entity} are {', '.join(entity.keys)}")


def quota_text(key: str, value: float) -> str:
    """Return the text of a quota for the tree. Raise `KafkaError` INVALID_REQUEST for an invalid value."""
    if not math.isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = _LARGEST_INTEGER.get(key)
    if largest is None:
        return str(value)
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for {'an INT' if largest < 2**32 else 'a LONG'}.")
    if abs(round(value) - value) > _ROUNDING or not round(value):
        raise _invalid(f"{key} cannot be a fractional value.")
    return str(min(round(value), largest))


def only_quotas(entity: QuotaEntity, config: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas in an entity's configuration, without its other keys and without invalid values."""
    found = {}
    for key in entity.keys:
        try:
            value = float(config.get(key, ""))
        except ValueError:
            continue
        if math.isfinite(value) and value > 0:
            found[key] = value
    return found


def limits_by_key(
    configs: Mapping[QuotaEntity, Mapping[str, str]],
) -> dict[str, dict[QuotaEntity, float]]:
    limits: dict[str, dict[QuotaEntity, float]] = {key: {} for key in (*USER_KEYS, *IP_KEYS)}
    for entity, config in configs.items():
        for key, value in only_quotas(entity, config).items():
            limits[key][entity] = value
    return limits


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
