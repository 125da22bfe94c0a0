"""A standalone cluster of Spark on this machine: a master and two workers, each a process."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from odradek.spark.local.java import find_java
from odradek.testing.conditions import eventually
from odradek.testing.servers.ports import free_ports

FLAGS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The JVM's options of master and workers, which start fast with them."""
_HOSTS: Final = ("127.0.0.1", "127.0.0.2")
"""Spark starts the second attempt of a task on another host only."""


class SparkCluster(Struct, frozen=True, kw_only=True):
    """The URL of a master, and the processes of master and workers, whose children are the executors."""

    url: str
    pids: tuple[int, ...]


@contextmanager
def two_workers(folder: Path, *, cores: int) -> Iterator[SparkCluster]:
    """Run a master and two workers of `cores` cores and 1 GiB each, which log to `folder`, during the block."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port, *others = free_ports(4)
    url = f"spark://{_HOSTS[0]}:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", _HOSTS[0], "--port", str(port), "--webui-port", str(others[0])]]
    for host, web in zip(_HOSTS, others[1:], strict=True):
        worker = [f"{deploy}.worker.Worker", "--host", host, "--webui-port", str(web), "--cores", str(cores)]
        commands.append([*worker, "--memory", "1g", "--work-dir", str(folder / f"worker-{host}"), url])
    environment = os.environ | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{FLAGS} -Dspark.master.rest.enabled=false",
        "SPARK_LOCAL_IP": _HOSTS[0],
    }
    log = folder / "spark.log"
    with log.open("wb") as output:
        processes = [
            subprocess.Popen([home / "bin" / "spark-class", *command], env=environment, stdout=output, stderr=output)
            for command in commands
        ]
        try:
            eventually(
                lambda: log.read_bytes().count(b"Successfully registered with master") == 2,
                within_s=300,
                what="both workers to register",
            )
            yield SparkCluster(url=url, pids=tuple(process.pid for process in processes))
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
