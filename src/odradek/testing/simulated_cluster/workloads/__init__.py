"""Clients that load a simulated cluster, each kind with the history of what it saw and the checks of that."""
