"""Lists that are filtered, sorted and paged at the server, by `?q=…&sort=-size&page=2` of the address."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from odradek.page.view import PageRequest

T = TypeVar("T")
PAGE_ROWS: Final = 100


class Listing(Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list. `sort` is the key by which it is sorted; `total` counts all rows that the filter matches."""

    rows: Sequence[T]
    total: int
    page: int
    pages: int
    q: str
    sort: str
    descending: bool
    query: Mapping[str, str]

    @property
    def without_filter(self) -> str:
        return "?" + urlencode({name: value for name, value in self.query.items() if name not in ("page", "q")})

    def at(self, page: int) -> str:
        return "?" + urlencode({**self.query, "page": page})

    def sorted_by(self, key: str) -> str:
        """Return the address of the list sorted by a key: descending first, unless that is the order now."""
        descending = not self.descending if key == self.sort else key != "name"
        rest = {name: value for name, value in self.query.items() if name not in ("page", "sort")}
        return "?" + urlencode({**rest, "sort": f"-{key}" if descending else key})


def listing(
    asked: PageRequest,
    rows: Iterable[T],
    keys: Mapping[str, Callable[[T], Any]],
    *,
    text: Callable[[T], str],
    default: str,
    page_rows: int = PAGE_ROWS,
) -> Listing[T]:
    """Return the page of `rows` that the address asks for.

    `q` must be in a row's `text`. `keys` are those to sort by; None comes last. `default` is a sort, as "-size".
    """
    q = asked.query.get("q", "").strip()
    sort = asked.query.get("sort", default)
    key = keys.get(sort.removeprefix("-"))
    if key is None:
        sort, key = default, keys[default.removeprefix("-")]
    descending = sort.startswith("-")
    found = [row for row in rows if q.lower() in text(row).lower()]
    with_value = [row for row in found if key(row) is not None]
    without = [row for row in found if key(row) is None]
    ordered = sorted(with_value, key=key, reverse=descending) + without
    pages = max(1, -(-len(ordered) // page_rows))
    page = min(asked.number("page", 1, least=1), pages)
    return Listing(
        rows=ordered[(page - 1) * page_rows : page * page_rows],
        total=len(ordered),
        page=page,
        pages=pages,
        q=q,
        sort=sort.removeprefix("-"),
        descending=descending,
        query=asked.query,
    )
