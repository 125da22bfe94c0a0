"""The former place of `odradek.simulation.seed_run`."""
