"""Authentication, ACLs and quotas: a client's principal, its permissions, and its limits.

`listener_security` has each listener's TLS and SASL mechanisms, `session_authentication` one connection's exchange.
Handlers of SaslHandshake and SaslAuthenticate call the session's exchange. Mechanisms are in `odradek.security.sasl`.

Before a handler runs, `admission` may hold the request (asynchronous check), or refuse it as a whole (that check, or
the permissions `request` of `broker.apis`). The handler then authorizes each resource that the request names
(permissions `items`) by the `context`. `odradek.security.acl_authorizer` decides, since tools explain its decisions,
too; `acl_changes` writes ACLs to the metadata tree, and `quotas` delays clients above their quotas.
"""
