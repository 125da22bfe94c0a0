"""The type of bytes that rooms pass to each other without copying them."""

Buffer = bytes | bytearray | memoryview
"""Any bytes-like object that a function only reads."""
