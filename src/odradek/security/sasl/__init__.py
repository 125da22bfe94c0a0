"""SASL mechanisms: PLAIN, SCRAM (RFC 5802, 7677) and OAUTHBEARER (RFC 7628), JAAS texts.

A client's exchange is a `SaslClient`, a server's a `SaslServer`. Neither reads a clock or random numbers: nonces,
credentials and the check of tokens are arguments.
"""
