"""Lists and sets the levels of this process's loggers, for resources of type BROKER_LOGGER (KIP-412).

A level lasts until the process ends. Brokers in one process, as in tests, share their loggers.
"""

import logging
from collections.abc import Iterable
from typing import Final

from odradek.config.altering import Alteration, AlterOperation
from odradek.config.definition import ConfigSource, ConfigType
from odradek.config.describe import ConfigEntry
from odradek.model import ErrorCode, KafkaError

_log = logging.getLogger("odradek.broker")
logging.getLogger("odradek")  # the parent of all our loggers has to exist, so that one level sets them all
_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's levels, by which entries have increasing numbers here."""
_ROOT: Final = "root"


def describe_loggers() -> list[ConfigEntry]:
    """Return each logger that exists, with the level in force, its own or inherited."""
    return [
        ConfigEntry(
            name=name,
            value=_level_name(logger.getEffectiveLevel()),
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            type=ConfigType.UNKNOWN,
            doc="",
            synonyms=(),
            read_only=False,
        )
        for name, logger in sorted(_loggers().items())
    ]


def alter_loggers(alterations: Iterable[Alteration], *, validate_only: bool) -> None:
    """Set levels, or remove them so that loggers inherit again: all, or none with `KafkaError`."""
    loggers = _loggers()
    levels: dict[str, int] = {}
    for each in alterations:
        if each.operation not in {AlterOperation.SET, AlterOperation.DELETE}:
            name = AlterOperation(each.operation).name
            raise KafkaError(
                ErrorCode.invalid_request, f"{name} operation is not allowed for the BROKER_LOGGER resource"
            )
        if each.name not in loggers:
            raise KafkaError(ErrorCode.invalid_config, f"Logger {each.name[:250]} does not exist!")
        if each.operation == AlterOperation.SET and each.value not in _LEVELS:
            known = ", ".join(sorted(_LEVELS))
            problem = f"it is not a supported log level. Valid log levels are {known}"
            raise KafkaError(
                ErrorCode.invalid_config, f"Cannot set the log level of {each.name} to {each.value} as {problem}"
            )
        if each.operation == AlterOperation.DELETE and each.name == _ROOT:
            raise KafkaError(ErrorCode.invalid_request, "Removing the log level of the root logger is not allowed")
        levels[each.name] = _LEVELS[each.value or ""] if each.operation == AlterOperation.SET else logging.NOTSET
    for name, level in () if validate_only else levels.items():
        loggers[name].setLevel(level)
        _log.warning("Updated the log level of %s to %s", name, _level_name(loggers[name].getEffectiveLevel()))


def _loggers() -> dict[str, logging.Logger]:
    existing = logging.root.manager.loggerDict
    named = {name: each for name, each in existing.items() if isinstance(each, logging.Logger)}
    return {**named, _ROOT: logging.root}


def _level_name(level: int) -> str:
    """Return Kafka's name of the lowest level that is logged at `level`."""
    return next((name for name, number in _LEVELS.items() if number >= level), "FATAL")
