"""The transactions of a producer (KIP-98, KIP-447, KIP-890, KIP-939): `machine` decides, without a clock or I/O."""
