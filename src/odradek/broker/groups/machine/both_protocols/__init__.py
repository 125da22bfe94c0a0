"""Groups that migrate between the protocols (KIP-848, "Migration"): classic members of consumer groups, conversions."""
