"""The check of bearer tokens that are JSON Web Tokens (RFC 7519), by the package PyJWT.

Only asymmetric signatures are accepted, by a key whose type fits the token's algorithm: neither `none`, nor a public
key that is used as the secret of an HMAC. Times are compared with the broker's clock.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from odradek.model import AuthenticationError, packages_of
from odradek.security.sasl.exchange import LONGEST_NAME
from odradek.security.sasl.oauthbearer import BearerToken

JsonWebKey = Mapping[str, Any]
_KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""The accepted algorithms, with the type of their keys."""
_LATEST_S: Final = 1e11
_OPTIONS: Final = {
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_sub", "verify_jti"), False),
    "require": ["exp", "iat"],
}
_LONGEST_REASON: Final = 200


def parse_key_set(content: bytes) -> list[JsonWebKey]:
    """Return the keys for signatures of a JWKS (RFC 7517). Raises `ValueError` if there is none."""
    try:
        keys = json.loads(content)["keys"]
        found = [each for each in keys if each["kty"] in _KEY_TYPES.values() and each.get("use", "sig") == "sig"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("it is not a JSON Web Key Set") from None
    if not found:
        raise ValueError("it has no public key for signatures")
    return found


class JsonWebTokenValidator:
    """Checks tokens. `keys(kid)` returns the keys with this id, all of them for None; `now_ms` is the clock.

    Raises `ConfigurationError` if a package is missing.
    """

    def __init__(
        self,
        keys: Callable[[str | None], Sequence[JsonWebKey]],
        now_ms: Callable[[], int],
        *,
        audiences: Sequence[str],
        issuer: str | None,
        clock_skew_s: int,
        subject_claim: str,
        scope_claim: str,
    ) -> None:
        with packages_of("security", "OAUTHBEARER tokens"):
            import cryptography  # noqa: F401 (PyJWT knows no asymmetric signature without it)
            import jwt
        self._jwt = jwt
        self._keys = keys
        self._now_ms = now_ms
        self._audiences = audiences
        self._issuer = issuer
        self._clock_skew_s = clock_skew_s
        self._subject_claim = subject_claim
        self._scope_claim = scope_claim

    def check(self, token: str) -> BearerToken:
        """Return the user of a token and when it expires. Raises `AuthenticationError`."""
        try:
            claims = self._verified(token)
        except (self._jwt.PyJWTError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise _refusal(str(error) or type(error).__name__) from None
        now_s, expires_s = self._now_ms() / 1000, _time(claims, "exp")
        _time(claims, "iat")
        if now_s - self._clock_skew_s >= expires_s:
            raise _refusal("it has expired")
        if "nbf" in claims and now_s + self._clock_skew_s < _time(claims, "nbf"):
            raise _refusal("it is not valid yet (nbf)")
        scope = claims.get(self._scope_claim, "")
        if not isinstance(scope, str) and not (
            isinstance(scope, list) and all(isinstance(each, str) for each in scope)
        ):
            raise _refusal(f"the claim {self._scope_claim} is neither a text nor a list of texts")
        user = claims.get(self._subject_claim)
        if not isinstance(user, str) or not user or len(user) > LONGEST_NAME:
            raise _refusal(f"the claim {self._subject_claim} is not a user's name")
        if user != user.strip():  # Kafka removes blanks; here another user's name must not become this one's
            raise _refusal(f"the claim {self._subject_claim} begins or ends with a blank")
        return BearerToken(user=user, expires_ms=int(expires_s * 1000))

    def _verified(self, token: str) -> dict[str, Any]:
        """Return the claims of a token with a valid signature, audience and issuer."""
        header = self._jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        key_type = _KEY_TYPES.get(algorithm or "")
        if algorithm is None or key_type is None:
            raise _refusal(f"its algorithm is {algorithm!r}, not one of {', '.join(_KEY_TYPES)}")
        keys = [each for each in self._keys(kid) if each["kty"] == key_type and each.get("alg", algorithm) == algorithm]
        if len(keys) != 1:
            raise _refusal(f"there is no key for it: kid {kid!r}, algorithm {algorithm}")
        options: Any = {**_OPTIONS, "verify_aud": bool(self._audiences)}
        return self._jwt.decode(
            token,
            self._jwt.PyJWK(dict(keys[0]), algorithm).key,
            algorithms=[algorithm],
            audience=self._audiences or None,
            issuer=self._issuer,
            options=options,
        )


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_S:
        raise _refusal(f"the claim {name} is not a time")
    return value


def _refusal(reason: str) -> AuthenticationError:
    return AuthenticationError(f"Authentication failed: invalid token: {reason[:_LONGEST_REASON]}")
