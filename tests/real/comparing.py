"""What every comparison of the model with a real kube-scheduler says, and how it is asked for."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.real.scenarios.plain import Kind
from tests.real.scenarios.stage import Stage
from tests.support.kube import KubeClient


class Compared(Protocol):
    """One decision of the real scheduler, beside the model's: `scenario` has a family, `seen` a kind and victims."""

    @property
    def scenario(self) -> Any: ...

    @property
    def seen(self) -> Any: ...

    @property
    def agrees(self) -> bool: ...


Answer = TypeVar("Answer", bound=Compared)


def seeds(count: int) -> range:
    """The one seed that is named, else as many as wanted."""
    if named := os.environ.get("RUNG_REALITY_SEED"):
        return range(int(named), int(named) + 1)
    return range(int(os.environ.get("RUNG_REALITY_COUNT", count)))


def table(found: Sequence[Compared], families: Iterable[str]) -> str:
    """Markdown: families, decisions, what became of who came, agreement."""
    lines = ["| scenarios | decisions | placed | waits | preempts | victims | agree |", "|---|---|---|---|---|---|---|"]
    for family in (*families, "all"):
        mine = [each for each in found if family in {each.scenario.family, "all"}]
        kinds = Counter(each.seen.kind for each in mine)
        counts = [len(mine), kinds[Kind.PLACED], kinds[Kind.WAITS], kinds[Kind.PREEMPTS]]
        counts += [sum(len(each.seen.victims) for each in mine), sum(each.agrees for each in mine)]
        lines.append(f"| {family} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def differing(found: Iterable[Compared]) -> list[str]:
    """Every disagreement, told whole."""
    return [str(each) for each in found if not each.agrees]


def compare(
    answers: Callable[[KubeClient, Sequence[int]], Iterator[Answer]],
    stage: type[Stage],
    families: Iterable[str],
    *,
    kubeconfig: str,
    seeds: Sequence[int],
) -> None:
    """Compare, print, clear up."""
    admin = KubeClient(Path(kubeconfig))
    try:
        found = list(answers(admin, seeds))
    finally:
        stage(admin).clear()
        admin.close()
    sys.stdout.write(f"{table(found, families)}\n\n")
    sys.stdout.write("".join(f"{each}\n" for each in differing(found)))
