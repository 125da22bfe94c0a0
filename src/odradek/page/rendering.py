"""The templates: jinja2 with autoescape, filters for numbers and times, the addresses of static files."""

import datetime
import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from odradek.model.texts import several_lines
from odradek.page.messages.reading import line_of

_FOLDER: Final = Path(__file__).parent
_TIME_UNITS: Final = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000}
_NO_LIMIT: Final = str(2**63 - 1)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
CLUSTERS: Final = "/clusters/"
_ADDRESS: Final = re.compile(rf'( (?:href|src|action)=")/(?!/|{CLUSTERS[1:]})')
"""The start of an address of the page in an attribute; values in texts have no quotation mark, as they are escaped."""
STATIC_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Renderer:
    """The templates and static files of the page; `cluster` is that of its addresses, "" if the page has only one."""

    def __init__(self, cluster: str = "") -> None:
        self._prefix = f"{CLUSTERS}{cluster}" if cluster else ""
        self.static = {
            path.name: path.read_bytes()
            for path in sorted((_FOLDER / "static").iterdir())
            if path.suffix in STATIC_TYPES
        }
        self._environment = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "number": number,
            "bytes": size,
            "time": time_tag,
            "unit": in_units,
            "change": lambda value: f"{value:+,}" if value else number(value),
            "seconds": lambda text: duration(None if text is None else float(text) * 1000),
            "duration": duration,
            "shell": shlex.quote,
            "visible": several_lines,
            "line": line_of,
        }
        self._environment.globals |= {"static": self._static_address}
        # Blocks are rendered alone, too, and would not see what a template imports.
        self._environment.globals["ui"] = self._environment.get_template("ui.html").module

    def page(self, template: str, values: Mapping[str, Any]) -> str:
        return self._addressed(self._environment.get_template(template).render(values))

    def block(self, template: str, name: str, values: Mapping[str, Any]) -> str:
        found = self._environment.get_template(template)
        return self._addressed("".join(found.blocks[name](found.new_context(dict(values)))))

    def _addressed(self, html: str) -> str:
        return _ADDRESS.sub(rf"\g<1>{self._prefix}/", html) if self._prefix else html

    def _static_address(self, name: str) -> str:
        return f"/static/{name}?v={hashlib.sha256(self.static[name]).hexdigest()[:12]}"


def number(value: float | None) -> str:
    """Format a number with thousands separators; "–" for None."""
    return "–" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Format bytes with a binary unit, "1.5 MiB"; "–" for None."""
    if value is None:
        return "–"
    scaled, unit = float(value), 0
    while abs(scaled) >= 1024 and unit < len(_UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{value} B" if unit == 0 else f"{scaled:.1f} {_UNITS[unit]}"


def duration(value_ms: float | None) -> str:
    """Format milliseconds, as "350 ms", "4.2 s", "3 min 20 s", "2 h 5 min" or "3 d 4 h"; "–" for None."""
    if value_ms is None:
        return "–"
    if value_ms < 1000:
        return f"{value_ms:.0f} ms"
    seconds = value_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for unit, smaller, length, part in (("d", "h", 86_400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {smaller}"
    return f"{whole} s"


def in_units(value: str | None, key: str) -> str:
    """Return the value of a configuration key in a larger unit, as "7 days" or "1 GiB"; "" where it has none."""
    if value is None or value == _NO_LIMIT or (value == "-1" and key.startswith("retention.")):
        return "no limit" if value else ""
    amount = int(value) if value.isdecimal() and len(value) < 20 else 0
    if key.endswith(".ms") and amount >= 1000:
        unit, length = next((each for each in _TIME_UNITS.items() if amount % each[1] == 0), ("", amount))
        count = amount // length
        return f"{count} {unit}{'s' * (count > 1)}" if unit == "day" or (unit and count < 100) else duration(amount)
    if key.endswith(".bytes") and amount >= 1024:
        return size(amount) if amount % 1024 else size(amount).replace(".0", "")
    return ""


def time_tag(time_ms: int | None) -> Markup | str:
    """Return a `<time>` element in UTC, which page.js changes to the user's zone; "–" for None and -1."""
    if time_ms is None or time_ms < 0:
        return "–"
    try:
        when = datetime.datetime.fromtimestamp(time_ms / 1000, tz=datetime.UTC)
    except (OverflowError, ValueError):
        return f"{time_ms} ms"
    text = when.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    return Markup('<time datetime="{}Z">{} UTC</time>').format(text.replace(" ", "T"), text)
