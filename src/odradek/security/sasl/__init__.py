"""SASL mechanisms: PLAIN, SCRAM (RFC 5802, 7677) and OAUTHBEARER (RFC 7628), JAAS texts.

A client's exchange is a `SaslClient`, a server's a `SaslServer`. Neither reads a clock or random numbers: nonces,
credentials and the check of tokens are arguments.
"""

from odradek.security.sasl.exchange import LONGEST_NAME, SaslClient, SaslServer
from odradek.security.sasl.jaas import JaasLogin, jaas_text, parse_jaas
from odradek.security.sasl.json_web_tokens import JsonWebTokenValidator, parse_key_set
from odradek.security.sasl.oauthbearer import BearerToken, OauthBearerClient, OauthBearerServer
from odradek.security.sasl.plain import PlainClient, PlainServer
from odradek.security.sasl.scram import (
    FEWEST_ITERATIONS,
    MOST_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramClient,
    ScramCredential,
    ScramServer,
    credential_of_salted,
    decode_credential,
    encode_credential,
    salted_password,
    scram_credential,
)

__all__ = [
    "FEWEST_ITERATIONS",
    "LONGEST_NAME",
    "MOST_ITERATIONS",
    "SCRAM_MECHANISMS",
    "BearerToken",
    "JaasLogin",
    "JsonWebTokenValidator",
    "OauthBearerClient",
    "OauthBearerServer",
    "PlainClient",
    "PlainServer",
    "SaslClient",
    "SaslServer",
    "ScramClient",
    "ScramCredential",
    "ScramServer",
    "credential_of_salted",
    "decode_credential",
    "encode_credential",
    "jaas_text",
    "parse_jaas",
    "parse_key_set",
    "salted_password",
    "scram_credential",
]
