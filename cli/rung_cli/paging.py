"""Lists of any length: one page after the other, as far as they are wanted."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from rung_cli.signing import Api
from rung_cli.wire import Query

LARGEST: Final = 500


def rows(api: Api, path: str, name: str, *, query: Query, most: int | None = None) -> list[dict[str, Any]]:
    """Up to `most` rows of the list under `name`; None is all of them."""
    size = LARGEST if most is None else min(most, LARGEST)
    return list(islice(each(api, path, name, query=query, size=size), most))


def each(api: Api, path: str, name: str, *, query: Query, size: int = LARGEST) -> Iterator[dict[str, Any]]:
    """Row by row, asking for the next page when it is needed."""
    asked = {key: value for key, value in query.items() if value != ""}
    offset: int | None = 0
    while offset is not None:
        page = api.get(path, **asked, limit=size, offset=offset)
        yield from page[name]
        following = page.get("next")
        offset = following if isinstance(following, int) and following > offset else None
