"""Several brokers on one machine, each a process: started together, started again when they die, stopped together.

The supervisor reads one line of a broker's standard output, `ready: HOST:PORT`, and nothing else: what a broker logs
goes to a file of its own. It is no part of the cluster; brokers find each other in the metadata tree.
"""

from odradek.supervisor.restarts import Restarts
from odradek.supervisor.supervisor import BrokerCommand, Supervisor

__all__ = ["BrokerCommand", "Restarts", "Supervisor"]
