"""The admin client: topics, partitions, groups, offsets, configurations and brokers of any Kafka cluster.

`admin` has `Admin`, whose methods call the functions of the other modules, one module per kind of resource;
`descriptions` has most of their arguments and results, `results` the errors of calls about several resources.
"""

from odradek.clients.admin.admin import Admin
from odradek.clients.admin.descriptions import NewTopic

__all__ = ["Admin", "NewTopic"]
