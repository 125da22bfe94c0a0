"""Runnable examples of the documentation; the tests run them, too."""
