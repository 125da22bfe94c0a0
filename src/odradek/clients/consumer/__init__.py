"""The consumer: group membership, fetch positions, and fetching of records.

`consumer` has `Consumer`, `subscription` what the application subscribed to, `settings` the configuration;
`assignment_manager` keeps the assignment at what the subscription and the group say, and runs callbacks.
`deserializers` and `interceptors` are the application's, `metrics` the counters, `errors` those of `poll`.
`subscription_state` has the assigned partitions, their positions and fetched records; the room `fetching` fills it.
`commit_request_manager` commits. The room `membership` has a pure state machine for each protocol, with `actions` out;
`consumer_coordinator` sends their requests and keeps their timers.
"""

from odradek.clients.consumer.consumer import Consumer
from odradek.clients.consumer.errors import LogTruncationError, RecordDeserializationError
from odradek.clients.consumer.interceptors import ConsumerInterceptor
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import ConsumerRecord

__all__ = [
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerSettings",
    "LogTruncationError",
    "RecordDeserializationError",
]
