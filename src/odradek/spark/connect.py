"""Sessions of Spark Connect: start, copies for pipelines, and an end that waits for no server."""

import re
import weakref
from collections.abc import Mapping
from typing import Any, Final

from odradek.model import ConfigurationError, UnavailableError
from odradek.spark.master import FIRST_BATCH, SHUFFLE_PARTITIONS, SPARKS_SHUFFLE_PARTITIONS

_DETAILS: Final = re.compile(r'details = "(.+)"')
"""The sentence in the text of a gRPC error."""
_SPLITS: Final = re.compile(r"\bsplits=(?:Some\()?(\d+)")

_copies: weakref.WeakSet[Any] = weakref.WeakSet()
"""The sessions of `copy_session` that are still referred to."""


def remote_session(url: str, settings: Mapping[str, str] | None = None) -> Any:
    """Return a session of the Spark Connect server `sc://HOST:PORT` with these settings of Spark SQL.

    Raise `UnavailableError` if it does not answer, and `ConfigurationError` for a setting that a session cannot have.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        session = SparkSession.builder.remote(url).getOrCreate()
        # The first call that needs the server. Its retries would take ten minutes.
        policies = session.client.get_retry_policies()
        session.client.set_retry_policies([])
        _ = session.version
        session.client.set_retry_policies(policies)
    except ImportError as error:
        raise UnavailableError(
            f"Spark Connect needs more packages: pip install 'pyspark[connect]' ({error})"
        ) from error
    except Exception as error:
        # gRPC's own errors, whose package may be missing here, have no base class here.
        if not isinstance(error, (PySparkException, ValueError, RuntimeError)) and "grpc" not in type(error).__module__:
            raise
        details = _DETAILS.search(str(error))
        reason = details[1] if details else str(error).splitlines()[0]
        raise UnavailableError(f"no Spark Connect server answers at {url}: {reason}") from error
    for key, value in (FIRST_BATCH | dict(settings or {})).items():
        try:
            session.conf.set(key, value)
        except PySparkException as error:
            stop_connect(session)
            raise ConfigurationError(f"{url} refuses the setting {key}: {str(error).splitlines()[0]}") from error
    _fit_shuffle_partitions(session, settings or {})
    return session


def _fit_shuffle_partitions(session: Any, settings: Mapping[str, str]) -> None:
    """Set the number of shuffle partitions to the server's cores, unless the caller or the server has chosen one."""
    if SHUFFLE_PARTITIONS in settings or session.conf.get(SHUFFLE_PARTITIONS) != SPARKS_SHUFFLE_PARTITIONS:
        return
    # The plan of a range has as many splits as the server has cores; other calls for it need a SparkContext.
    if splits := _SPLITS.search(session.range(1)._explain_string()):
        session.conf.set(SHUFFLE_PARTITIONS, splits[1])


def copy_session(session: Any) -> Any:
    """Return a session of the same server with the same settings, which `stop_connect` ends, too."""
    copy = session.cloneSession()
    _copies.add(copy)
    return copy


def stop_connect(session: Any) -> None:
    """End a session and its copies on the server, without retries.

    A session that an exception still refers to would be closed at Python's exit, when gRPC's threads have ended: the
    process would never exit.
    """
    for each in (*_copies, session):
        each.client.set_retry_policies([])
        each.stop()
    _copies.clear()
