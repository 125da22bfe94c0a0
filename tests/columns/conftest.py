"""Compiled code is slow the first time, so Hypothesis has no deadline here."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
