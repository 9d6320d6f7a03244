"""How many pods of a gang fit while others are taken away, against a plain count of every node."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod
from scheduling.rules.kube.gangs import BY_IMPORTANCE, EvictionUnit, GangTrial, minimal_victims
from scheduling.rules.kube.preemption import kube_state
from tests.builders import gang, node, snapshot
from tests.scheduling.test_invariants import modest

chances = st.builds(Random, st.integers(0, 2**32))
Spaces = dict[str, tuple[Resources, int]]


def units_and_spaces(chance: Random) -> tuple[list[EvictionUnit], Spaces]:
    """Pods and gangs on a few nodes, one of which the new gang may not use; what is free there besides."""
    names = [f"n{number}" for number in range(chance.randrange(2, 6))]
    groups = [
        gang(
            f"g{number}",
            gpus=chance.choice([0, 1, 1, 2]),
            priority=chance.choice([25, 40, 80]),
            pods=(size := chance.choice([1, 1, 2, 3])),
            nodes=tuple(chance.choice(names) for _pod in range(size)),
            started=chance.randrange(5),
        )
        for number in range(chance.randrange(1, 12))
    ]
    state = kube_state(snapshot(*(node(name, 8) for name in names), *groups))
    units = [unit for _rank, unit in state.ranked(BY_IMPORTANCE)]
    free = [Resources.of(gpu=chance.randrange(3), cpu=chance.randrange(9)) for _name in names[1:]]
    return units, {name: (amount, chance.randrange(4)) for name, amount in zip(names[1:], free, strict=True)}


def fitting(spaces: Spaces, pods: list[Pod], gone: list[EvictionUnit]) -> int:
    """Each pod in turn on the emptiest node that has room for it."""
    left = {name: [amount, more] for name, (amount, more) in spaces.items()}
    for assignment in (assignment for unit in gone for assignment in unit.assignments if assignment.pod.node in left):
        left[assignment.pod.node][0] += assignment.pod.requests
        left[assignment.pod.node][1] += 1
    count = 0
    for pod in pods:
        takers = [name for name, (amount, more) in left.items() if more > 0 and pod.requests.served_by(amount)]
        if takers:
            best = max(takers, key=lambda name: (left[name][0].gpu, left[name][0].cpu, left[name][0].memory))
            left[best] = [left[best][0] - pod.requests, left[best][1] - 1]
            count += 1
    return count


@modest
@given(chances)
def test_everybody_is_given_back_who_is_not_needed(chance: Random) -> None:
    units, spaces = units_and_spaces(chance)
    alike = Resources.of(gpu=chance.choice([0, 1, 2]), cpu=chance.choice([0, 2]))
    sizes = [alike] * 4 if chance.random() < 0.7 else [alike, ZERO, Resources.of(gpu=1), Resources.of(gpu=2)]
    pods = [Pod(f"p{number}", requested) for number, requested in enumerate(sizes[: chance.randrange(1, 5)])]
    needed, gone = chance.randrange(1, len(pods) + 1), list(units)
    trial = GangTrial(spaces, pods)
    assert trial.fitting() == fitting(spaces, pods, [])
    found = minimal_victims(trial, units, needed)
    if fitting(spaces, pods, gone) < needed:
        assert found is None
        return
    for unit in units:
        without = [each for each in gone if each is not unit]
        gone = without if fitting(spaces, pods, without) >= needed else gone
    assert found == gone
    assert trial.fitting() == fitting(spaces, pods, gone)
