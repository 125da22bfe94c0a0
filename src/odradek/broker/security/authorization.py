"""The authorizer of a broker, from its configuration."""

import logging
from collections.abc import Iterable
from shlex import quote
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.config.listener_settings import inter_broker_listener, listener_settings
from odradek.model import ConfigurationError
from odradek.security import ANONYMOUS, AclAuthorizer, Acls, parse_principal, trimmed, written_as_java_does
from odradek.security.quotas import QuotaEntity

_OLD_NAME: Final = (
    "%s %s, as earlier releases wrote a certificate's name. Now it is the name that Java writes, which is %s if "
    "OpenSSL made the certificate. %s"
)

_log = logging.getLogger("odradek.authorizer")


def create_authorizer(config: BrokerConfig) -> AclAuthorizer | None:
    """Return the authorizer; None without one. Raises `ConfigurationError` for invalid `super.users`."""
    try:
        super_users = frozenset(parse_principal(name) for name in map(trimmed, config.super_users.split(";")) if name)
    except ValueError as error:
        raise ConfigurationError(f"super.users: {error}, separated by semicolons") from None
    if not config.authorizer_class_name:
        return None
    listener = listener_settings(config, inter_broker_listener(config))
    if not listener.protocol.uses_sasl and not listener.protocol.uses_tls and ANONYMOUS not in super_users:
        _log.warning(
            "Brokers connect to each other as %s through the listener %s, and super.users does not have it: they are "
            "refused unless ACLs allow it; add it, or set inter.broker.listener.name to a listener with authentication",
            ANONYMOUS,
            listener.name,
        )
    return AclAuthorizer(super_users=super_users, allow_everyone=config.allow_everyone_if_no_acl_found)


def warn_of_old_names(authorizer: AclAuthorizer, acls: Acls) -> None:
    """Log each certificate's name that ACLs or super users have in the spelling of earlier releases."""
    users = {str(each) for each in authorizer.super_users}
    for old in sorted(users.union(entry.principal for entries in acls.values() for entry in entries)):
        kind, _, name = old.partition(":")
        if (new := written_as_java_does(name)) is not None and old in users:
            _log.warning(_OLD_NAME, "super.users has", old, f"{kind}:{new}", "Replace it")
        elif new is not None:
            advice = (
                f"Add each ACL of `odradek acls list --principal {quote(old)}` by `odradek acls add "
                f"{quote(f'{kind}:{new}')} …`, then run `odradek acls remove --principal {quote(old)}`"
            )
            _log.warning(_OLD_NAME, "ACLs are for", old, f"{kind}:{new}", advice)


def warn_of_old_quotas(entities: Iterable[QuotaEntity]) -> None:
    """Log each certificate's name that quotas have in the spelling of earlier releases."""
    for old in sorted({each.user for each in entities if each.user}):
        if (new := written_as_java_does(old)) is not None:
            advice = (
                f"Set each quota of this user in `odradek quotas list` by `odradek quotas set --user {quote(new)} …`, "
                f"then run `odradek quotas remove --user {quote(old)}`"
            )
            _log.warning(_OLD_NAME, "Quotas are for", old, new, advice)
