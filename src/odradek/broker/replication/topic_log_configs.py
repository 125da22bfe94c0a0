"""The configuration of a topic's logs: the broker's, overridden by the topic's."""

import logging
from typing import NamedTuple

from msgspec.structs import replace

from odradek.config import BrokerConfig, topic_config
from odradek.log.log_config import LogConfig
from odradek.metadata.image import TopicImage
from odradek.model import ConfigurationError

_log = logging.getLogger("odradek.broker")


class _MadeConfig(NamedTuple):
    """A log configuration, with the configurations that it was made of."""

    broker: BrokerConfig
    topic: TopicImage | None
    config: LogConfig


class TopicLogConfigs:
    """Makes log configurations, and caches the last one, as logs of one topic are opened one after the other."""

    def __init__(self) -> None:
        self._last: _MadeConfig | None = None

    def of(self, name: str, topic: TopicImage | None, broker: BrokerConfig) -> LogConfig:
        """Return the configuration of a topic's logs. `topic` is None if the image does not have it.

        If the topic's configuration is unknown or invalid, `cleanup.policy` is empty, as the topic's retention may be
        longer than the broker's.
        """
        last = self._last
        if last is not None and last.broker is broker and last.topic is topic:
            return last.config
        own = topic_config(broker, {})
        is_known = topic is not None and topic.is_config_known
        if topic is not None:
            try:
                own = topic_config(broker, topic.config)
            except ConfigurationError as error:
                _log.error("the configuration of topic %s is ignored, and nothing of it is deleted: %s", name, error)
                is_known = False
        config = LogConfig.of(broker, own)
        if not is_known:
            config = replace(config, cleanup_policy=())
        self._last = _MadeConfig(broker, topic, config)
        return config
