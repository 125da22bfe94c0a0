"""The view of a cluster that each client has: its metadata, the connections to brokers, and the client's tasks."""

from odradek.clients.cluster.cluster import Cluster, open_cluster
from odradek.clients.cluster.connections import ConnectionPurpose, NoBrokerError

__all__ = ["Cluster", "ConnectionPurpose", "NoBrokerError", "open_cluster"]
