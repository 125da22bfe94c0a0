"""An extension of griffe: `Admin`'s methods, which are functions of the modules of their subjects, get their texts."""

import copy
import re
from typing import Any

import griffe


class AdminMethods(griffe.Extension):
    """Replaces attributes such as `create_acls = _of_cluster(acls.create_acls)` by the functions."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Edit a loaded package."""
        if pkg.name != "odradek":
            return
        admin = pkg["clients.admin.admin.Admin"]
        for name, member in list(admin.members.items()):
            if member.is_attribute and (found := re.fullmatch(r"_of_cluster\((.+)\)", str(member.value))):
                method = copy.copy(pkg[f"clients.admin.{found[1]}"])
                _, *parameters = method.parameters
                method.parameters = griffe.Parameters(griffe.Parameter("self"), *parameters)
                method.lineno, method.parent = member.lineno, admin
                admin.members[name] = method
