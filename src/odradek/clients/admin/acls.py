"""CreateAcls, DescribeAcls and DeleteAcls: who may do what (KIP-140, KIP-290)."""

from collections.abc import Iterable
from typing import Any

from odradek.clients.admin.results import RefusedError, errors_of
from odradek.clients.admin.topics import answer_error
from odradek.clients.arguments import instances_of
from odradek.clients.cluster import Cluster
from odradek.clients.retry import ask_each, retrying
from odradek.model import KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.acls import decoded_binding, entry_fields, filter_fields, pattern_fields
from odradek.security import ALL_ACLS, AclBinding, AclFilter


class RefusedAclsError(RefusedError[AclBinding]):
    """A `RefusedError` with `errors` by ACL."""


async def create_acls(cluster: Cluster, bindings: Iterable[AclBinding]) -> None:
    """Add ACLs (KIP-140); one that exists is no error. Raises `RefusedAclsError` if some are refused."""

    async def ask(some: list[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        creations = [{**pattern_fields(each.pattern), **entry_fields(each.entry)} for each in some]
        connection = await cluster.connections.least_loaded()
        response = await connection.request(ApiKey.CREATE_ACLS, {"creations": creations})
        return {each: answer_error(str(each), result) for each, result in zip(some, response.results, strict=False)}

    errors = errors_of(await ask_each(cluster, instances_of(AclBinding, bindings), ask))
    if errors:
        raise RefusedAclsError(errors)


async def describe_acls(cluster: Cluster, wanted: AclFilter = ALL_ACLS) -> list[AclBinding]:
    """Return the ACLs that the filter matches, sorted; all by default."""

    async def attempt() -> list[AclBinding]:
        connection = await cluster.connections.least_loaded()
        response = await connection.request(ApiKey.DESCRIBE_ACLS, filter_fields(wanted))
        if (error := answer_error("ACLs", response)) is not None:
            raise error
        return sorted(decoded_binding(resource, acl) for resource in response.resources for acl in resource.acls)

    return await retrying(cluster, attempt)


async def delete_acls(cluster: Cluster, filters: Iterable[AclFilter]) -> list[AclBinding]:
    """Remove the ACLs that any of the filters matches, and return them, sorted."""
    message = {"filters": [filter_fields(each) for each in instances_of(AclFilter, filters)]}
    deleted: set[AclBinding] = set()

    async def attempt() -> None:
        connection = await cluster.connections.least_loaded()
        response: Any = await connection.request(ApiKey.DELETE_ACLS, message)
        errors = [error for result in response.filter_results if (error := answer_error("ACLs", result)) is not None]
        for result in response.filter_results:
            deleted.update(decoded_binding(acl, acl) for acl in result.matching_acls if not acl.error_code)
        if errors:
            raise errors[0]

    await retrying(cluster, attempt)
    return sorted(deleted)
