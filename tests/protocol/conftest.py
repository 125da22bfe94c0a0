"""Loads kafka-python, whose import warns on Python 3.11, while warnings are no errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.record  # noqa: F401
