"""Loads kafka-python, whose import warns on Python 3.11, while warnings are no errors; gives Hypothesis time."""

import warnings

from hypothesis import settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.record  # noqa: F401

# A deadline per example is a timed assertion: on a busy machine it fails without a reason.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
