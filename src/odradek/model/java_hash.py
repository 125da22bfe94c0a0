"""Java's `String.hashCode`: it places coordinators, and the keys and partitions of Kafka 0.8."""

_INT = 1 << 32


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`, a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % _INT
    return value - _INT if value >= _INT // 2 else value


def positive_java_hash(text: str) -> int:
    """Return `abs(hashCode)`, or 0 for `Integer.MIN_VALUE`, as Kafka does."""
    value = abs(java_hash(text))
    return 0 if value == _INT // 2 else value
