"""The consumer: group membership, fetch positions, and fetching of records.

`consumer` has `Consumer`; its records wait in `subscription_state`, which `fetching` fills. `membership` has a pure
state machine for each group protocol, which returns `actions`. Names are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.clients.consumer.consumer import Consumer
    from odradek.clients.consumer.errors import LogTruncationError, RecordDeserializationError
    from odradek.clients.consumer.interceptors import ConsumerInterceptor
    from odradek.clients.consumer.membership.interface import ConsumerState
    from odradek.clients.consumer.settings import ConsumerSettings
    from odradek.clients.consumer.subscription_state import ConsumerRecord

_HOMES: Final = {
    "Consumer": "consumer",
    "ConsumerInterceptor": "interceptors",
    "ConsumerRecord": "subscription_state",
    "ConsumerSettings": "settings",
    "ConsumerState": "membership.interface",
    "LogTruncationError": "errors",
    "RecordDeserializationError": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


__all__ = [
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerSettings",
    "ConsumerState",
    "LogTruncationError",
    "RecordDeserializationError",
]
