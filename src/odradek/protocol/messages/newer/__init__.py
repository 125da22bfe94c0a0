"""Schemas of versions newer than kio's: a module for each API with `REQUEST` and `RESPONSE`, imported at its first use.

The version is `api.NEWER_VERSIONS`; classes extend kio's of the version before, or are kio's where nothing is new.
"""
