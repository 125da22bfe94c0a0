"""The views: one file each. A view is a value of `page.view.View` and a line of `VIEWS`, in the navigation's order."""

from typing import Final

from odradek.page.view import View
from odradek.page.views import cluster, groups, learn, messages, pipelines, security, topics, tree, what_if

VIEWS: Final[tuple[View, ...]] = (
    cluster.VIEW,
    topics.VIEW,
    messages.VIEW,
    groups.VIEW,
    what_if.VIEW,
    pipelines.VIEW,
    tree.VIEW,
    security.VIEW,
    learn.VIEW,
)
