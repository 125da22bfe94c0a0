"""The check that a log which was recovered or truncated knows what its batches say."""

from contextlib import suppress

from odradek.broker.lifecycle import Broker
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.inspection.running_log import Scans, deviations
from odradek.broker.log.log import Log
from odradek.simulation.promises import BrokenPromiseError


class RebuiltLogs:
    """The findings in the logs of all brokers, after each recovery and each truncation."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self._scans = Scans()

    def watch(self, broker: Broker) -> None:
        """Check the logs of a broker, which has not started, from now on."""
        number = broker.broker_id
        broker.logs.on_rebuilt = lambda log: self._look(number, log)

    def raise_findings(self) -> None:
        """Raise `BrokenPromiseError` for the first finding, if there is one."""
        if self.findings:
            raise BrokenPromiseError(self.findings[0])

    def _look(self, number: int, log: Log) -> None:
        with suppress(OSError, DamagedFileError):  # the disk fails, or a fault has damaged the file
            self.findings += [f"broker {number}: {each}" for each in deviations(log, self._scans)]
