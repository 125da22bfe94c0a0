"""Bearer tokens that brokers accept, and those that they refuse."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import get_default_algorithms

from odradek.model import AuthenticationError
from odradek.security.sasl.json_web_tokens import JsonWebTokenValidator, parse_key_set
from odradek.security.sasl.oauthbearer import BearerToken

NOW_S: Final = 1_790_000_000
CLAIMS: Final[dict[str, Any]] = {
    "sub": "alice",
    "iss": "https://issuer",
    "aud": "kafka",
    "iat": NOW_S - 10,
    "exp": NOW_S + 300,
}
RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE: Final = ec.generate_private_key(ec.SECP256R1())
EDWARDS: Final = ed25519.Ed25519PrivateKey.generate()


def public(key: Any, algorithm: str, **more: str) -> dict[str, Any]:
    found: dict[str, Any] = get_default_algorithms()[algorithm].to_jwk(key.public_key(), as_dict=True)
    return {**found, **more}


KEYS: Final = [
    public(RSA, "RS256", kid="rsa"),
    public(RSA, "RS256", kid="only-512", alg="RS512"),
    public(CURVE, "ES256", kid="curve"),
    public(EDWARDS, "EdDSA", kid="edwards"),
    {**public(OTHER_RSA, "RS256", kid="encryption"), "use": "enc"},
]


def validator(**changes: Any) -> JsonWebTokenValidator:
    keys = parse_key_set(json.dumps({"keys": changes.pop("keys", KEYS)}).encode())
    return JsonWebTokenValidator(
        lambda kid: [each for each in keys if kid is None or each["kid"] == kid],
        lambda: NOW_S * 1000,
        **{
            "audiences": ("kafka", "other"),
            "issuer": "https://issuer",
            "clock_skew_s": 30,
            "subject_claim": "sub",
            "scope_claim": "scope",
            **changes,
        },
    )


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **changes: Any) -> str:
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else {})


def encoded(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA, "RS256", "rsa"),
        (RSA, "RS512", "rsa"),
        (RSA, "PS256", "rsa"),
        (RSA, "RS512", "only-512"),
        (CURVE, "ES256", "curve"),
        (EDWARDS, "EdDSA", "edwards"),
    ],
)
def test_a_signed_token_is_its_subjects_until_it_expires(key: Any, algorithm: str, kid: str) -> None:
    checked = validator().check(token(key, algorithm, kid, scope=["read", "write"]))
    assert checked == BearerToken(user="alice", expires_ms=(NOW_S + 300) * 1000)


def test_names_of_claims_are_configured() -> None:
    checked = validator(subject_claim="preferred_username").check(token(sub=None, preferred_username="bob"))
    assert checked.user == "bob"
    assert validator(audiences=(), issuer=None).check(token(aud=["x"], iss="y")).user == "alice"


def test_a_token_without_a_key_id_needs_a_set_with_one_fitting_key() -> None:
    assert validator(keys=[KEYS[0], KEYS[2]]).check(token(kid=None)).user == "alice"
    with pytest.raises(AuthenticationError, match="there is no key for it"):
        validator(keys=[KEYS[0], public(OTHER_RSA, "RS256", kid="x")]).check(token(kid=None))


def without_signature() -> str:
    return f"{encoded({'alg': 'none', 'kid': 'rsa'})}.{encoded(CLAIMS)}."


def signed_by_the_public_key() -> str:
    import hashlib
    import hmac

    content = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(CLAIMS)}".encode()
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = urlsafe_b64encode(hmac.digest(secret, content, hashlib.sha256)).rstrip(b"=")
    return (content + b"." + signature).decode()


def with_other_claims() -> str:
    header, _, signature = token().split(".")
    return f"{header}.{encoded({**CLAIMS, 'sub': 'root'})}.{signature}"


def with_its_own_key() -> str:
    return jwt.encode(CLAIMS, OTHER_RSA, "RS256", headers={"kid": "x", "jwk": public(OTHER_RSA, "RS256")})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (without_signature, "its algorithm is 'none', not one of RS256"),
        (signed_by_the_public_key, "its algorithm is 'HS256'"),
        (with_other_claims, "Signature verification failed"),
        (with_its_own_key, "there is no key for it: kid 'x'"),
        (lambda: token(OTHER_RSA), "Signature verification failed"),
        (lambda: token(OTHER_RSA, kid="encryption"), "there is no key"),
        (lambda: token(kid="only-512"), "there is no key"),
        (lambda: token(CURVE, "ES256", "rsa"), "there is no key"),
        (lambda: token(kid="curve"), "there is no key"),
        (lambda: token(ec.generate_private_key(ec.SECP384R1()), "ES384", "curve"), "curve|ES384"),
        (lambda: token(iss="https://other"), "Invalid issuer"),
        (lambda: token(iss=None), '"iss" claim'),
        (lambda: token(aud="spark"), "Audience doesn't match"),
        (lambda: token(aud=None), '"aud" claim'),
        (lambda: token(exp=None), '"exp" claim'),
        (lambda: token(iat=None), '"iat" claim'),
        (lambda: token(exp=NOW_S - 30), "it has expired"),
        (lambda: token(nbf=NOW_S + 31), "not valid yet"),
        (lambda: token(sub=None), "the claim sub is not a user's name"),
        (lambda: token(sub=""), "the claim sub is not a user's name"),
        (lambda: token(sub="  "), "the claim sub begins or ends with a blank"),
        (lambda: token(sub="admin\u00a0"), "the claim sub begins or ends with a blank"),
        (lambda: token(sub="\u2003admin"), "the claim sub begins or ends with a blank"),
        (lambda: token(sub="admin\n"), "the claim sub begins or ends with a blank"),
        (lambda: token(scope={"a": 1}), "the claim scope is neither a text nor a list"),
        *((lambda text=text: text, "") for text in ("", "x", "a.b", "a.b.c", "..", "é.é.é", "a" * 9999)),
    ],
)
def test_any_other_token_is_refused(make: Callable[[], str], said: str) -> None:
    with pytest.raises(AuthenticationError, match=rf"^Authentication failed: invalid token: .*({said})"):
        validator().check(make())


@pytest.mark.parametrize("value", [True, -1, 1e12, float("nan"), float("inf"), [], {}, "x" * 100])
def test_a_time_that_is_none_is_refused(value: object) -> None:
    header = encoded({"alg": "RS256", "kid": "rsa"})
    content = f"{header}.{encoded({**CLAIMS, 'exp': value})}".encode()
    signature = get_default_algorithms()["RS256"].sign(content, RSA)
    made = (content + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()
    with pytest.raises(AuthenticationError, match="the claim exp is not a time"):
        validator().check(made)


def test_clocks_may_differ_by_the_skew() -> None:
    issued = token(iat=NOW_S + 60, nbf=NOW_S + 60)  # by an issuer whose clock is a minute ahead
    assert validator(clock_skew_s=60).check(issued).user == "alice"
    with pytest.raises(AuthenticationError, match="not valid yet"):
        validator(clock_skew_s=59).check(issued)
    late = token(exp=NOW_S - 60)
    assert validator(clock_skew_s=61).check(late).expires_ms == (NOW_S - 60) * 1000
    with pytest.raises(AuthenticationError, match="expired"):
        validator(clock_skew_s=60).check(late)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"keys": 1}', b'{"keys": [1]}', b'{"keys": []}', b'{"keys": [{"kty": "oct"}]}', b"[" * 99999],
)
def test_a_key_set_without_public_keys_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON Web Key Set|no public key"):
        parse_key_set(content)
