"""The authentication of clients, and of this broker to others.

`listener_security` has each listener's TLS and SASL mechanisms, `session_authentication` one connection's exchange.
Handlers of SaslHandshake and SaslAuthenticate call the session's exchange. Mechanisms are in `odradek.security.sasl`.
"""
