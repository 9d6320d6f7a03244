"""Every method of Run:ai's client, and whether its route is served here.

    python -m tests.support.runai_methods

writes the table of docs/migrating-from-runai.md anew.

python -m tests.api.methods
"""

import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.urls import Resolver404, resolve
from runai.runai_client import RunaiClient

from tests.support.repository import ROOT

GUIDE = ROOT / "docs" / "migrating-from-runai.md"
BEGIN, END = "<!-- methods: begin -->\n", "<!-- methods: end -->\n"
IDS = (str(uuid4()), "1", "trainings")
"""What stands for an id, until one of them fits."""


class Recorder:
    """In place of the client's transport: notes what would be sent."""

    def __init__(self) -> None:
        self.sent: tuple[str, str] = ("", "")

    def call_api(self, **call: Any) -> None:
        """The one door of every method."""
        self.sent = (call["method"], call["resource_path"])

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the client: `organizations.projects`, `get_projects`, and what it sends for each kind of id."""

    group: str
    name: str
    calls: tuple[tuple[str, str], ...]

    @property
    def route(self) -> str:
        """Verb and path, ids as a word."""
        verb, path = self.calls[0]
        return f"{verb} {path.replace(IDS[0], '{id}')}"

    @property
    def is_served(self) -> bool:
        """True if a route of ours takes the verb."""
        return any(_takes(verb, path) for verb, path in self.calls)


def methods() -> Iterator[Method]:
    """All of them, in the client's own order of groups."""
    recorder = Recorder()
    root: Any = RunaiClient(recorder)
    for group, _property in inspect.getmembers(RunaiClient, lambda each: isinstance(each, property)):
        inside = getattr(root, group)
        for part, _inner in inspect.getmembers(type(inside), lambda each: isinstance(each, property)):
            for name, method in inspect.getmembers(getattr(inside, part), inspect.ismethod):
                if not name.startswith("_") and name != "options":
                    yield Method(f"{group}.{part}", name, _calls(recorder, method))


def _calls(recorder: Recorder, method: Any) -> tuple[tuple[str, str], ...]:
    plain = _plain(method)
    needed = [each.name for each in inspect.signature(plain).parameters.values() if each.default is each.empty]
    found = []
    for value in IDS:
        plain(**dict.fromkeys(needed, value) | {"self": method.__self__})
        found.append(recorder.sent)
    return tuple(dict.fromkeys(found))


def _plain(method: Any) -> Any:
    """Without the wrapper of deprecated ones, which hides what they need."""
    within = [each.cell_contents for each in method.__func__.__closure__ or ()]
    return next(filter(inspect.isfunction, within), method.__func__)


def _takes(verb: str, path: str) -> bool:
    try:
        view = resolve(path).func
    except Resolver404:
        return False
    return verb in getattr(getattr(view, "cls", None), "access", {})


def table() -> str:
    """Markdown: how many of each group, and which are missing."""
    groups: dict[str, list[Method]] = {}
    for each in methods():
        groups.setdefault(each.group, []).append(each)
    rows = [_row(group, found) for group, found in groups.items()]
    everything = [each for found in groups.values() for each in found]
    served = sum(each.is_served for each in everything)
    head = f"{served} of the client's {len(everything)} methods have their route here.\n\n"
    return f"{head}| `client.…` | served | not served |\n|---|---|---|\n" + "".join(rows)


def _row(group: str, found: list[Method]) -> str:
    missing = [f"`{each.name}`" for each in found if not each.is_served]
    what = "all of it" if len(missing) == len(found) > 1 else ", ".join(missing)
    return f"| `{group}` | {len(found) - len(missing)} of {len(found)} | {what} |\n"


def told() -> str:
    """The table as it stands in the guide."""
    found = re.search(f"{BEGIN}(.*?){END}", GUIDE.read_text(), re.DOTALL)
    return found[1] if found else ""


def main() -> None:
    """Write it."""
    GUIDE.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}{table()}{END}", GUIDE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    main()
