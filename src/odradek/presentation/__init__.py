"""The notations that the command line and the page share: of records, values and offsets.

Wrong texts of users raise `click.BadParameter` or `click.UsageError`, whose message names what was expected.
"""
