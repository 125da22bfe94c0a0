"""The sink `odradek_iceberg`: its options, its writers, and the offsets of a batch in its checkpoint."""
