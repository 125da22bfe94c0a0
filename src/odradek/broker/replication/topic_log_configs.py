"""What holds for the logs of a topic: the broker's configuration, and what is set for the topic itself."""

import logging
from dataclasses import replace
from typing import NamedTuple

from odradek.config import BrokerConfig, topic_config
from odradek.log.log_config import LogConfig
from odradek.metadata.image import TopicImage
from odradek.model import ConfigurationError

_log = logging.getLogger("odradek.broker")


class _MadeConfig(NamedTuple):
    """What was made of a broker's and a topic's configuration: logs of one topic are opened one after the other."""

    broker: BrokerConfig
    topic: TopicImage | None
    config: LogConfig


class TopicLogConfigs:
    """Remembers the last one that was asked for."""

    def __init__(self) -> None:
        self._last: _MadeConfig | None = None

    def of(self, name: str, topic: TopicImage | None, broker: BrokerConfig) -> LogConfig:
        """What holds for the logs of `topic`; where that can't be read, or is not known, the broker's values do.

        But then nothing of the records may go: they may have been meant to be kept for longer.
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
