"""The SCRAM credentials of the metadata tree, and what an exchange shows of users that have none."""

import hashlib
from collections.abc import Callable, Mapping

from odradek.metadata.image import ClusterImage
from odradek.security.sasl.scram import FEWEST_ITERATIONS, ScramCredential, decode_credential

_USUAL = (32, FEWEST_ITERATIONS)
"""The salt's bytes and the iterations where the tree has no credential, as Kafka's tools make them."""


class ScramUsers:
    """The users of one broker's image.

    A user without a credential gets a salt and iterations that are derived from the cluster's secret, so that every
    broker shows the same ones, with a length and a number that credentials in the tree have.
    """

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._seen: Mapping[str, Mapping[str, str]] | None = None
        self._shapes: dict[str, list[tuple[int, int]]] = {}

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        text = self._image().user_configs.get(user, {}).get(mechanism)
        return None if text is None else decode_credential(text)

    def imagined(self, mechanism: str, user: str) -> tuple[bytes, int]:
        """Return a salt and iterations for a user without a credential of the mechanism."""
        image = self._image()
        if image.user_configs is not self._seen:
            self._seen, self._shapes = image.user_configs, {}
        if mechanism not in self._shapes:
            self._shapes[mechanism] = _shapes(mechanism, image.user_configs)
        shapes = self._shapes[mechanism]
        digest = hashlib.shake_256(image.secret.secret + f"{mechanism} {user}".encode())
        length, iterations = shapes[int.from_bytes(digest.digest(8)) % len(shapes)]
        return digest.digest(8 + length)[8:], iterations


def _shapes(mechanism: str, users: Mapping[str, Mapping[str, str]]) -> list[tuple[int, int]]:
    """Return each pair of a salt's length and iterations that a credential of the mechanism has."""
    texts = (configs[mechanism] for configs in users.values() if mechanism in configs)
    credentials = (each for each in map(decode_credential, texts) if each is not None)
    return sorted({(len(each.salt), each.iterations) for each in credentials}) or [_USUAL]
