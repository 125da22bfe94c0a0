"""The supervisor of `odradek up`: starts broker processes on one machine, restarts them after a crash, stops them.

The supervisor reads only the line `ready: HOST:PORT` from a broker's standard output, and is not part of the cluster.
"""

from odradek.supervisor.supervisor import BrokerCommand, Restarts, Supervisor

__all__ = ["BrokerCommand", "Restarts", "Supervisor"]
