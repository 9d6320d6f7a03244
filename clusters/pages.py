"""Lists that come in parts. Pure."""

from collections.abc import Iterable

from clusters.ports import Manifest, Page


def gathered(pages: Iterable[Page]) -> tuple[list[Manifest], str]:
    """The whole list of these pages, with its version."""
    found: list[Manifest] = []
    version = ""
    for page in pages:
        if page.first:
            found = []
        found += page.objects
        version = page.version
    return found, version
