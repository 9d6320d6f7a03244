"""Lists of any length: one page after the other, as far as they are wanted."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from rung_cli.http.client import Api
from rung_cli.http.transport import Query
from rung_cli.output.stderr import progress

LARGEST: Final = 500
WAYS: Final = frozenset({"next", "nextOffset", "nextAfter"})


def rows(api: Api, path: str, name: str, *, query: Query, most: int | None = None) -> list[dict[str, Any]]:
    """Up to `most` rows of the list under `name`; None is all of them."""
    size = LARGEST if most is None else min(most, LARGEST)
    found = list(islice(each(api, path, name, query=query, size=size), most))
    progress("")
    return found


def each(api: Api, path: str, name: str, *, query: Query, size: int = LARGEST) -> Iterator[dict[str, Any]]:
    """Row by row, asking for the next page when it is needed: by cursor where the list has one, else by offset.

    After a cursor nothing is skipped or repeated when rows come and go, and the last page is as quick as the first.
    """
    asked = {key: value for key, value in query.items() if value != ""}
    place: Query | None = {}
    read = 0
    while place is not None:
        page = api.get(path, **asked, **place, limit=size)
        yield from page[name]
        read += len(page[name])
        place = _next(page, read, full=len(page[name]) == size)
        progress("" if place is None else f"{read} read …")


def _next(page: Mapping[str, Any], read: int, *, full: bool) -> Query | None:
    """What to ask with for the page after this one; None after the last. Some lists say it apart, in other words.

    Lists that say nothing of it (nodes, node pools, access rules) go on until a page is not full.
    """
    ways = page.get("pagination") or page
    if not WAYS & ways.keys():
        return {"offset": read} if full else None
    if cursor := ways.get("nextAfter"):
        return {"after": str(cursor)}
    return None if ways.get("next", ways.get("nextOffset")) is None else {"offset": read}
