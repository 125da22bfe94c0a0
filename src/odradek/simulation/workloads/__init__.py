"""Clients that load a simulated cluster, each kind with a history of its results and the checks of that history."""
