"""Where chance comes from: `random.Random`'s own interface, so that a seed can take its place."""

import random
import uuid

Entropy = random.Random
"""Everything random takes one of these; tests pass `random.Random(seed)`."""


def system_entropy() -> Entropy:
    """The operating system's randomness."""
    return random.SystemRandom()


def uuid4(entropy: Entropy) -> uuid.UUID:
    """A version 4 UUID out of `entropy`."""
    return uuid.UUID(bytes=entropy.randbytes(16), version=4)
