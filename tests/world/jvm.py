"""A Java VM for tests that compare with Java's own classes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odradek.spark.local.java import find_java


@contextmanager
def running_jvm(classpath: str = "") -> Iterator[Any]:
    """Yield `jvm`, whose attributes are Java's packages, as `jvm.java.util.HashMap()`."""
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
        launch_gateway,
    )

    java = str(find_java().home / "bin" / "java")
    port, token, process = launch_gateway(
        classpath=classpath, java_path=java, die_on_exit=True, enable_auth=True, return_proc=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
