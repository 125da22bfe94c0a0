"""The type of bytes-like objects."""

Buffer = bytes | bytearray | memoryview
"""Any bytes-like object that a function only reads."""
