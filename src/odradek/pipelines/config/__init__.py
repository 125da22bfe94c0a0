"""A pipeline's TOML file: `parsing` turns it into the classes of `pipelines`, and reports errors with their line.

docs/spark.md lists every key; `odradek pipeline example KIND` prints a file of each kind.
"""

from odradek.config.toml import TomlKeyError
from odradek.pipelines.config.parsing import PipelineFile, load_file, load_pipeline, parse_pipeline, toml_files
from odradek.pipelines.config.pipelines import (
    DIRECTORY_FORMATS,
    FILE_FORMATS,
    AnyPipeline,
    BadRowLimit,
    MirrorPipeline,
    Pipeline,
    QueryPipeline,
    Restart,
    Sink,
    Source,
    Stream,
    Target,
    Topics,
    Trigger,
    exactly_once_options,
    is_url,
)

__all__ = [
    "DIRECTORY_FORMATS",
    "FILE_FORMATS",
    "AnyPipeline",
    "BadRowLimit",
    "MirrorPipeline",
    "Pipeline",
    "PipelineFile",
    "QueryPipeline",
    "Restart",
    "Sink",
    "Source",
    "Stream",
    "Target",
    "TomlKeyError",
    "Topics",
    "Trigger",
    "exactly_once_options",
    "is_url",
    "load_file",
    "load_pipeline",
    "parse_pipeline",
    "toml_files",
]
