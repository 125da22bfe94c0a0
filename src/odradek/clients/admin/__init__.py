"""The admin client: topics, partitions, groups, offsets, configurations and brokers of a Kafka cluster.

`admin` has `Admin`, whose methods call functions of the other modules, one per kind of resource. `descriptions` has
most of their arguments and results, `results` the errors of calls for several resources.
"""

from odradek.clients.admin.admin import Admin
from odradek.clients.admin.descriptions import NewTopic

__all__ = ["Admin", "NewTopic"]
