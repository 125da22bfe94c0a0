"""The consumer: group membership, fetch positions, and fetching of records.

`consumer` has `Consumer`, `subscription` the subscribed topics or pattern, `settings` the configuration.
`assignment_manager` updates the assigned partitions and runs rebalance callbacks; `commit_request_manager` commits.
`deserializers` and `interceptors` run the application's functions, `metrics` has the counters, `errors` the errors of
`poll`. `subscription_state` has the assigned partitions with their positions and fetched records; the package
`fetching` fills it. The package `membership` has a pure state machine for each group protocol, which returns `actions`;
`consumer_coordinator` sends them as requests and keeps the timers. Names are imported at their first use.
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
