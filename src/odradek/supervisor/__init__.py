"""Several broker processes on one machine: start, restart after a crash, stop.

The supervisor reads only the line `ready: HOST:PORT` from a broker's standard output; the log goes to a file. It is
not part of the cluster: brokers find each other in the metadata tree.
"""

from odradek.supervisor.restarts import Restarts
from odradek.supervisor.supervisor import BrokerCommand, Supervisor

__all__ = ["BrokerCommand", "Restarts", "Supervisor"]
