"""The admin client: the methods of `Admin` are functions of the other modules, one for each kind of resource."""

from odradek.clients.admin.admin import Admin
from odradek.clients.admin.descriptions import NewTopic

__all__ = ["Admin", "NewTopic"]
