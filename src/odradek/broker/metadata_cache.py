"""The cluster image and the configuration that a broker currently uses."""

from odradek.config.broker import BrokerConfig
from odradek.metadata.image import ClusterImage


class MetadataCache:
    """The current image and configuration; the broker replaces each as a whole."""

    def __init__(self, config: BrokerConfig) -> None:
        self.broker_id = config.broker_id
        self.config = config
        self.image = ClusterImage()

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration in the image; -1 if the image has none."""
        registered = self.image.brokers.get(self.broker_id)
        return -1 if registered is None else registered.epoch
