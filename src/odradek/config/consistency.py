"""Checks of a broker's keys against each other, such as a minimum against its maximum."""

from typing import TYPE_CHECKING, Final

from odradek.config.listener_settings import inter_broker_listener, listener_settings
from odradek.config.listeners import parse_ip_counts, parse_listener
from odradek.model import ConfigurationError

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

_CLEANER_BYTES: Final = 1 << 20


def check_consistency(config: "BrokerConfig") -> None:
    """Raise `ConfigurationError` if values contradict each other."""
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigurationError("group.min.session.timeout.ms is at most group.max.session.timeout.ms")
    if config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads <= _CLEANER_BYTES:
        raise ConfigurationError("log.cleaner.dedupe.buffer.size has to be more than 1 MiB for each cleaner thread")
    if 0 <= config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise ConfigurationError("queued.max.request.bytes is -1 or at least socket.request.max.bytes")
    parse_ip_counts(config.max_connections_per_ip_overrides)
    if not config.listeners or not config.log_dirs:
        raise ConfigurationError(f"{'log.dirs' if config.listeners else 'listeners'} needs a value")
    if len(set(config.log_dirs)) < len(config.log_dirs):
        raise ConfigurationError(f"log.dirs names a directory twice: {', '.join(config.log_dirs)}")
    _check_listeners(config)
    for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        name, shortest, longest = (f"group.consumer.{limit}{what}" for limit in ("", "min.", "max."))
        check_range(name, config.get(name), (shortest, config.get(shortest)), (longest, config.get(longest)))
    check_heartbeat(
        "group.consumer.", config.group_consumer_heartbeat_interval_ms, config.group_consumer_session_timeout_ms
    )


def _check_listeners(config: "BrokerConfig") -> None:
    listeners = [parse_listener(text).name for text in config.listeners]
    if len(set(listeners)) < len(listeners):
        raise ConfigurationError(f"listeners has a name twice: {', '.join(listeners)}")
    for text in config.advertised_listeners or ():
        if parse_listener(text).name not in listeners:
            raise ConfigurationError(f"advertised.listeners has {text}, and listeners has no such name")
        if parse_listener(text).host in {"", "0.0.0.0", "::"}:
            raise ConfigurationError(
                f"advertised.listeners has {text}, which means every interface; name this machine as clients know it"
            )
    for name in listeners:
        listener_settings(config, name)
    inter_broker_listener(config)


def check_range(name: str, value: object, shortest: tuple[str, object], longest: tuple[str, object]) -> None:
    """Raise `ConfigurationError` unless `value` is within the limits, each a key and its value."""
    assert isinstance(value, int)
    assert isinstance(shortest[1], int)
    assert isinstance(longest[1], int)
    if not shortest[1] <= value <= longest[1]:
        raise ConfigurationError(
            f"{name} is between {shortest[0]}={shortest[1]} and {longest[0]}={longest[1]}, not {value}"
        )


def check_heartbeat(prefix: str, interval_ms: int, session_timeout_ms: int) -> None:
    """Raise `ConfigurationError` unless the heartbeat interval is shorter than the session time-out."""
    if interval_ms >= session_timeout_ms:
        raise ConfigurationError(
            f"{prefix}heartbeat.interval.ms={interval_ms} is less than "
            f"{prefix}session.timeout.ms={session_timeout_ms}, or every member expires"
        )
