"""The views of security: ACLs and which of them decides, users, quotas; forms that change them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from odradek.clients.admin.user_credentials import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.page.lists import Listing, listing
from odradek.page.view import Action, Done, Page, PageRequest, View
from odradek.security import (
    RESOURCE_TYPES,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    kafka_name,
    trimmed,
)
from odradek.security.quotas import DEFAULT, IP_KEYS, USER_KEYS, QuotaEntity
from odradek.security.sasl.scram import SCRAM_MECHANISMS
from odradek.texts.acl_texts import UNSEEN_KEYS, Explanation, explain, operation_of, principal_of, resource_of

_REFUSALS: Final = {
    ErrorCode.security_disabled: "The brokers have no authorizer, so everything is allowed. To use ACLs, set "
    "authorizer.class.name in the configuration of the brokers.",
    ErrorCode.cluster_authorization_failed: "The cluster does not show this to the page's user, who needs the "
    "operation DESCRIBE on the cluster for ACLs and users, DESCRIBE_CONFIGS for quotas.",
}
_DEFAULT: Final = "<default>"
"""The text for defaults; a user may have this name, so that forms and addresses have a field of its own."""
_DEFAULT_FIELD: Final = "-default"
OPERATIONS: Final = tuple(kafka_name(each) for each in AclOperation if each > AclOperation.ANY)
TYPES: Final = tuple(kafka_name(each) for each in RESOURCE_TYPES)


class AclRow(Struct, frozen=True, kw_only=True):
    """An ACL in Kafka's names."""

    binding: AclBinding
    principal: str
    allows: bool
    operation: str
    resource: str
    is_prefix: bool
    host: str

    @property
    def query(self) -> str:
        fields = {"principal": self.principal, "operation": self.operation, "resource": self.resource}
        flags = {"prefixed": "1" if self.is_prefix else "", "deny": "" if self.allows else "1", "host": self.host}
        return urlencode({**fields, **flags})


class UserRow(Struct, frozen=True, kw_only=True):
    """A user that authenticates by SCRAM."""

    name: str
    credentials: list[ScramCredentialInfo]


class QuotaRow(Struct, frozen=True, kw_only=True):
    """One quota of an entity."""

    entity: str
    key: str
    value: str
    query: str


class SecurityList(Struct, frozen=True, kw_only=True):
    """A list, or why it is refused."""

    rows: Listing[Any] | None = None
    refusal: str = ""


class Choices(Struct, frozen=True, kw_only=True):
    """The choices of the forms that add."""

    operations: tuple[str, ...] = OPERATIONS
    types: tuple[str, ...] = TYPES
    keys: tuple[str, ...] = (*USER_KEYS, *IP_KEYS)
    mechanisms: tuple[str, ...] = tuple(SCRAM_MECHANISMS.values())


class ExplainPage(Choices, frozen=True, kw_only=True):
    """The decision on an action if the address names one, or why it is refused, and the choices of the form."""

    explanation: Explanation | None = None
    refusal: str = ""
    unseen_keys: str = UNSEEN_KEYS


class Removal(Struct, frozen=True, kw_only=True):
    """A form that removes; its user types `typed` again."""

    title: str
    notice: str
    typed: str


def _or_refusal(
    data: Callable[[PageRequest], Awaitable[Any]], page: Callable[..., Any] = SecurityList
) -> Callable[[PageRequest], Awaitable[Any]]:
    """Wrap a data function: it returns a sentence if the cluster has no authorizer or refuses to show the data."""

    async def asked_or_refused(asked: PageRequest) -> Any:
        try:
            return await data(asked)
        except KafkaError as error:
            if error.code not in _REFUSALS:
                raise
            return page(refusal=_REFUSALS[error.code])

    return asked_or_refused


async def acls(asked: PageRequest) -> SecurityList:
    """Return the ACLs; `q` is part of a principal or of a resource."""
    rows = [_acl_row(each) for each in await (await asked.admin()).describe_acls()]
    names = ("principal", "operation", "resource", "host")
    keys: dict[str, Callable[[AclRow], Any]] = {name: lambda row, name=name: getattr(row, name) for name in names}  # type: ignore[misc]
    text = lambda row: f"{row.principal} {row.resource}"  # noqa: E731
    return SecurityList(rows=listing(asked, rows, keys, text=text, default="resource"))


def _acl_row(binding: AclBinding) -> AclRow:
    entry, (kind, name, pattern_type) = binding.entry, binding.pattern
    return AclRow(
        binding=binding,
        principal=entry.principal,
        allows=entry.permission_type is AclPermissionType.ALLOW,
        operation=kafka_name(entry.operation),
        resource=f"{kafka_name(kind)}:{name}",
        is_prefix=pattern_type is PatternType.PREFIXED,
        host=entry.host,
    )


async def users(asked: PageRequest) -> SecurityList:
    found = await (await asked.admin()).describe_user_scram_credentials()
    rows = [UserRow(name=name, credentials=credentials) for name, credentials in found.items()]
    name = lambda row: row.name  # noqa: E731
    return SecurityList(rows=listing(asked, rows, {"name": name}, text=name, default="name"))


async def quotas(asked: PageRequest) -> SecurityList:
    found = await (await asked.admin()).describe_client_quotas()
    rows = [
        QuotaRow(entity=str(entity), key=key, value=f"{value:,.15g}", query=_quota_query(entity, key))
        for entity, limits in found.items()
        for key, value in limits.items()
    ]
    keys = {"name": lambda row: (row.entity, row.key), "key": lambda row: (row.key, row.entity)}
    return SecurityList(rows=listing(asked, rows, keys, text=lambda row: f"{row.entity} {row.key}", default="name"))


def _quota_query(entity: QuotaEntity, key: str) -> str:
    names = {kind if name else f"{kind}{_DEFAULT_FIELD}": name or "1" for kind, name in entity.parts.items()}
    return urlencode({**names, "key": key})


async def explained(asked: PageRequest) -> ExplainPage:
    """Return the decision on the action that the address names, if any."""
    if not asked.query.get("principal"):
        return ExplainPage()
    entry, pattern = (binding := _binding(asked.query)).entry, binding.pattern
    found = await explain(
        await asked.admin(), principal_of(entry.principal), entry.operation, pattern, asked.query.get("host", "")
    )
    return ExplainPage(explanation=found)


# ---- changes ----------------------------------------------------------------------------------------------------


async def choices(_asked: PageRequest) -> Choices:
    return Choices()


async def chosen_acl(asked: PageRequest) -> Removal:
    binding = _binding(asked.query)
    return Removal(title="Remove an ACL", notice=str(binding), typed=binding.entry.principal)


async def chosen_quota(asked: PageRequest) -> Removal:
    entity = _entity(asked.query)
    notice = f"{asked.query.get('key', '')} of {entity}"
    return Removal(title="Remove a quota", notice=notice, typed=_names(entity))


async def chosen_user(asked: PageRequest) -> Removal:
    """Return the form that deletes the user of the address; a name may have any characters: it is in the query."""
    if not (user := asked.query.get("user", "")):
        raise ConfigurationError("the address names no user")
    notice = "New logins of the user fail at once. Its ACLs and quotas stay."
    return Removal(title=f"Delete user {user}", notice=notice, typed=user)


def _names(entity: QuotaEntity) -> str:
    return ", ".join(name or _DEFAULT for name in entity.parts.values())


def _binding(fields: Mapping[str, str]) -> AclBinding:
    """Return the ACL of a form or an address: `resource` is TYPE:NAME, or `type` and `name` are its parts."""
    text = fields.get("resource") or f"{fields.get('type', '')}:{trimmed(fields.get('name', ''))}"
    pattern_type = PatternType.PREFIXED if fields.get("prefixed") else PatternType.LITERAL
    return AclBinding(
        pattern=resource_of(text)._replace(pattern_type=pattern_type),
        entry=AclEntry(
            principal=str(principal_of(trimmed(fields.get("principal", "")))),
            host=trimmed(fields.get("host", "")) or "*",
            operation=operation_of(fields.get("operation", "")),
            permission_type=AclPermissionType.DENY if fields.get("deny") else AclPermissionType.ALLOW,
        ),
    )


async def add_acl(asked: PageRequest) -> Done:
    binding = _binding(asked.form)
    await (await asked.admin()).create_acls([binding])
    return Done(address="/security", message=f"Added: {binding}.")


async def remove_acl(asked: PageRequest) -> Done:
    """Remove the ACL of the address, whose principal the form must repeat."""
    binding = _binding(asked.query)
    _check_typed(asked, binding.entry.principal)
    pattern, entry = binding.pattern, binding.entry
    wanted = AclFilter(
        resource_type=pattern.resource_type, name=pattern.name, pattern_type=pattern.pattern_type,
        principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission_type,
    )  # fmt: skip
    removed = await (await asked.admin()).delete_acls([wanted])
    return Done(address="/security", message=f"{'Removed' if removed else 'It was gone already'}: {binding}.")


def _check_typed(asked: PageRequest, name: str) -> None:
    if trimmed(asked.form.get("typed", "")) != trimmed(name):
        raise ConfigurationError(f"the name that you typed is not {name}: nothing is removed")


async def add_user(asked: PageRequest) -> Done:
    """Add a user, or change the password, by both mechanisms or the chosen one."""
    user, password, mechanism = (asked.form.get(name, "") for name in ("user", "password", "mechanism"))
    user = trimmed(user)
    if not user or not password:
        raise ConfigurationError("a user has a name and a password")
    if password != asked.form.get("again"):
        raise ConfigurationError("the two passwords differ: nothing is changed")
    known = tuple(SCRAM_MECHANISMS.values())
    if mechanism not in ("", *known):
        raise ConfigurationError(f"{mechanism!r} is not one of {', '.join(known)}")
    mechanisms = [each for each in known if mechanism in ("", each)]
    await (await asked.admin()).alter_user_scram_credentials(
        [UserScramCredentialUpsertion(user=user, mechanism=each, password=password) for each in mechanisms]
    )
    return Done(address="/security/users", message=f"User {user} authenticates by {' and '.join(mechanisms)}.")


async def remove_user(asked: PageRequest) -> Done:
    """Delete the credentials of the address's user, whose name the form must repeat."""
    user = (await chosen_user(asked)).typed
    _check_typed(asked, user)
    admin = await asked.admin()
    present = (await admin.describe_user_scram_credentials([user])).get(user, [])
    await admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion(user=user, mechanism=each.mechanism) for each in present]
    )
    return Done(address="/security/users", message=f"User {user} no longer authenticates by SCRAM.")


def _entity(fields: Mapping[str, str]) -> QuotaEntity:
    """Return the entity of a form or an address, where `user-default` stands for all users without a quota."""
    names: list[str | None] = []
    for kind in ("user", "client-id", "ip"):
        name, is_default = trimmed(fields.get(kind, "")), bool(fields.get(f"{kind}{_DEFAULT_FIELD}"))
        if name and is_default:
            raise ConfigurationError(f"a quota is for the {kind} {name[:40]}, or for all without one of their own")
        names.append(DEFAULT if is_default else name or None)
    entity = QuotaEntity(*names)
    if not entity.parts or (entity.ip is not None and len(entity.parts) > 1):
        raise ConfigurationError("a quota is for a user, a client id, both, or an IP address alone")
    return entity


async def set_quota(asked: PageRequest) -> Done:
    entity, key, text = _entity(asked.form), asked.form.get("key", ""), asked.form.get("value", "").strip()
    try:
        value = float(text)
    except ValueError:
        raise ConfigurationError(f"a quota is a number, not {text[:40]!r}") from None
    await (await asked.admin()).alter_client_quotas(entity, {key: value})
    return Done(address="/security/quotas", message=f"{key} of {entity} is {value:.15g}.")


async def remove_quota(asked: PageRequest) -> Done:
    """Remove the quota of the address, whose entity the form must name."""
    entity, key = _entity(asked.query), asked.query.get("key", "")
    _check_typed(asked, _names(entity))
    await (await asked.admin()).alter_client_quotas(entity, {key: None})
    return Done(address="/security/quotas", message=f"{entity} has no {key} any more.")


VIEW = View(
    title="Security",
    path="/security",
    pages=(
        Page(path="/security", template="security_acls.html", data=_or_refusal(acls), live=("rows",)),
        Page(path="/security/users", template="security_users.html", data=_or_refusal(users), live=("rows",)),
        Page(path="/security/quotas", template="security_quotas.html", data=_or_refusal(quotas), live=("rows",)),
        Page(path="/security/explain", template="security_explain.html", data=_or_refusal(explained, ExplainPage)),
        Page(path="/security/add-acl", template="security_add_acl.html", data=choices, operator=True),
        Page(path="/security/remove-acl", template="security_remove.html", data=chosen_acl, operator=True),
        Page(path="/security/add-user", template="security_add_user.html", data=choices, operator=True),
        Page(path="/security/remove-user", template="security_remove.html", data=chosen_user, operator=True),
        Page(path="/security/set-quota", template="security_set_quota.html", data=choices, operator=True),
        Page(path="/security/remove-quota", template="security_remove.html", data=chosen_quota, operator=True),
    ),
    actions=(
        Action(path="/security/add-acl", act=add_acl),
        Action(path="/security/remove-acl", act=remove_acl),
        Action(path="/security/add-user", act=add_user),
        Action(path="/security/remove-user", act=remove_user),
        Action(path="/security/set-quota", act=set_quota),
        Action(path="/security/remove-quota", act=remove_quota),
    ),
)
