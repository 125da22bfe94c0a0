"""The former place of `odradek.simulation`."""
