"""Loads Python functions that a pipeline's file names as `MODULE:NAME`, from its directory or an installed package."""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from odradek.config.toml import TomlKeyError
from odradek.pipelines.errors import sentence_of


def load_function(name: str, directory: Path, key: str) -> Callable[..., Any]:
    """Import a function. Raise `TomlKeyError` about `key` if that fails.

    A module in `directory` is pickled by value, so that Spark's workers do not need to find it.
    """
    module_name, _, function_name = name.partition(":")
    if (place := str(directory.absolute())) not in sys.path:
        sys.path.insert(0, place)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        text = sentence_of(f"{type(error).__name__}: {error}")
        raise TomlKeyError(key, f"{key}: {module_name} cannot be imported: {text}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise TomlKeyError(key, f"{key}: {module_name} has no function {function_name}")
    if Path(getattr(module, "__file__", None) or "/").is_relative_to(place):
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(module)
    return function  # type: ignore[no-any-return]


def call_query_function(name: str, directory: Path, views: Mapping[str, Any]) -> Any:
    """Call a function with the views as keyword arguments; return its DataFrame. Raise `TomlKeyError` if it fails."""
    function = load_function(name, directory, "function")
    try:
        frame = function(**views)
        if not callable(getattr(frame, "createOrReplaceTempView", None)):
            raise TypeError(f"it returned {type(frame).__name__}, not a DataFrame")
        if not frame.isStreaming:
            raise TypeError("it returned a DataFrame that does not come from its streams")
    except Exception as error:
        raise TomlKeyError("function", f"function: {name} failed: {sentence_of(str(error))}") from error
    return frame
