"""What other quotas of a node pool would do: fair shares before and after, and who would be hit. Nothing is stored.

The shares are those of the cluster's scheduler, computed from its queues as Rung would write them, the capacity of the
nodes as last observed, and what the projects use and request now.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from portal.kit.db.validation import raise_problems
from portal.kit.errors import Problem, ValidationFailed
from scheduling.forecast.cycle import Flavour
from scheduling.model.resources import DIMENSIONS, Resources
from tenants.access.selectors import Access
from tenants.organisation.models import Department, Project
from tenants.quotas.rules import (
    QuotaValues,
    below_non_preemptible_use,
    limit_below_use,
    over_parent_limit,
    over_physical,
    sum_over_department,
    value_problems,
    weights_without_effect,
)
from tenants.quotas.selectors.desired_state import QuotaRow
from tenants.quotas.selectors.quota_tree import (
    OwnerKey,
    PoolQuotas,
    fair_shares_of,
    key_of,
    may_see,
    over,
    requested_by,
)
from tenants.quotas.services.pool_quotas import parse_entry, values_shape_problems
from tenants.quotas.services.quotas import newly_reclaimable

Owner = Department | Project
Edits = Mapping[OwnerKey, QuotaValues]


@dataclass(frozen=True, slots=True)
class ShareRule:
    """How a scheduler shares a pool. code: fair_share, deserved (it divides no surplus) or none."""

    code: str
    text: str | Promise


FAIR_SHARE: Final = ShareRule(
    "fair_share",
    _("Fair share by the rule of KAI Scheduler: deserved first, then the surplus by rank, then by over-quota weight."),
)
KUEUE: Final = ShareRule(
    "deserved",
    _(
        "Kueue divides no surplus in advance: what others leave unused is borrowed on demand. The share shown is the "
        "requested part of the deserved quota, which borrowers have to give back."
    ),
)
VOLCANO: Final = ShareRule(
    "deserved",
    _(
        "Volcano's capacity plugin divides no surplus in advance: what others leave unused is taken on demand. The "
        "share shown is the requested part of the deserved quota, which reclaim can bring back."
    ),
)
NO_SHARE: Final = ShareRule(
    "none",
    _("No fair share: kube-scheduler divides nothing and reclaims nothing. Limits are caps; deserved is not reserved."),
)
RULES: Final[Mapping[str, ShareRule]] = {
    Flavour.KAI: FAIR_SHARE,
    Flavour.KUEUE: KUEUE,
    Flavour.VOLCANO: VOLCANO,
    Flavour.KUBE: NO_SHARE,
    Flavour.KUBE_GANGS: NO_SHARE,
}


@dataclass(frozen=True, slots=True)
class Share:
    """What a department or project gets of a resource when all ask at once, before and after."""

    owner: Owner
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Overhang:
    """Non-preemptible use above the new deserved quota of a resource: it cannot be evicted to make room."""

    owner: Owner
    held: int
    deserved: int

    @property
    def over(self) -> int:
        return self.held - self.deserved


@dataclass(frozen=True, slots=True)
class OwnerProblem:
    """A refusal or a warning about one department or project."""

    owner: Owner
    problem: Problem


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The effect of a change of quotas in one pool, as far as its reader may see the owners.

    shares: of those whose share changes; empty where the scheduler has no fair share or no node was observed.
    elsewhere: how much the shares of projects change together that the reader may not see. refusals: saving is refused
    for these.
    """

    before: PoolQuotas
    after: PoolQuotas
    rule: ShareRule
    shares: tuple[Share, ...]
    elsewhere: int
    overhangs: tuple[Overhang, ...]
    refusals: tuple[OwnerProblem, ...]
    warnings: tuple[OwnerProblem, ...]

    @property
    def reclaimable(self) -> list[OwnerProblem]:
        return [each for each in self.warnings if each.problem.code == "becomes_reclaimable"]

    @property
    def other_warnings(self) -> list[OwnerProblem]:
        return [each for each in self.warnings if each.problem.code != "becomes_reclaimable"]


def what_if(quotas: PoolQuotas, edits: Edits, access: Access, resource: str = "gpu") -> WhatIf:
    """Compare the pool with these quotas set. Values are well-formed (`value_problems`), owners are of this pool.

    Shares and overhangs are of one resource, refusals and warnings of all.
    """
    changed = {key: values for key, values in edits.items() if values != values_of(quotas.quota(key))}
    after = quotas.with_quotas({key: row_of(values) for key, values in changed.items()})
    shares, elsewhere = _shares(quotas, after, access, resource) if changed else ((), 0)
    return WhatIf(
        before=quotas,
        after=after,
        rule=rule_of(quotas.pool.cluster),
        shares=shares,
        elsewhere=elsewhere,
        overhangs=tuple(_overhangs(after, changed, resource)),
        refusals=tuple(_refusals(after, changed)),
        warnings=tuple(_warnings(quotas, after, changed)),
    )


MOST_EDITS: Final = 2000


def parse_edits(
    quotas: PoolQuotas, entries: Sequence[Mapping[str, Any]], access: Access
) -> dict[OwnerKey, QuotaValues]:
    """Quotas by their owners' names: `{"project" | "department": name, "values": entry}`; absent values stay.

    Raises ValidationFailed with a pointer at every bad value, and for owners that the reader may not see.
    """
    if len(entries) > MOST_EDITS:
        text = _now("At most %(most)d quotas.") % {"most": MOST_EDITS}
        raise ValidationFailed.at("/quotas", "too_many", text)
    seen = ((key, owner.name) for key, owner in quotas.owners.items() if may_see(access, owner))
    names: dict[tuple[str, str], OwnerKey] = {(key.kind, name): key for key, name in seen}
    found: dict[OwnerKey, QuotaValues] = {}
    problems: list[Problem] = []
    for number, entry in enumerate(entries):
        at = f"/quotas/{number}"
        try:
            key = _owner_of(entry, names, found, at)
            raise_problems(values_shape_problems(f"{at}/values", entry["values"]))
            before = values_of(quotas.quota(key))
            found[key] = parse_entry(entry["values"], pointer=f"{at}/values", before=before)
            problems += [replace(each, pointer=f"{at}/values{each.pointer}") for each in value_problems(found[key])]
        except ValidationFailed as error:
            problems += error.problems
    raise_problems(problems)
    return found


def _owner_of(
    entry: Mapping[str, Any], names: Mapping[tuple[str, str], OwnerKey], found: Collection[OwnerKey], at: str
) -> OwnerKey:
    kinds = [kind for kind in ("department", "project") if entry.get(kind)]
    if len(kinds) != 1:
        raise ValidationFailed.at(at, "one_owner", _now("Name either a department or a project."))
    key = names.get((kinds[0], entry[kinds[0]]))
    if key is None:
        raise ValidationFailed.at(f"{at}/{kinds[0]}", "unknown_name", _now("Unknown name."))
    if key in found:
        raise ValidationFailed.at(f"{at}/{kinds[0]}", "repeated", _now("Named twice."))
    return key


def values_of(row: QuotaRow) -> QuotaValues:
    return QuotaValues(row.deserved, row.limit, row.over_quota_weight, row.rank, row.cpu_weight, row.memory_weight)


def row_of(values: QuotaValues) -> QuotaRow:
    weights = (values.over_quota_weight, values.cpu_weight, values.memory_weight)
    return QuotaRow(values.deserved, values.limit, *weights, values.rank)


def rule_of(cluster: Cluster) -> ShareRule:
    """How the cluster's scheduler shares."""
    return RULES[cluster.flavour]


def _shares(before: PoolQuotas, after: PoolQuotas, access: Access, resource: str) -> tuple[tuple[Share, ...], int]:
    old, new = share_of_each(before, resource), share_of_each(after, resource)
    moved = [Share(before.owners[key], share, new[key]) for key, share in old.items() if new[key] != share]
    seen = tuple(each for each in moved if may_see(access, each.owner))
    hidden = [each for each in moved if isinstance(each.owner, Project) and each not in seen]
    return seen, sum(each.after - each.before for each in hidden)


def share_of_each(quotas: PoolQuotas, resource: str = "gpu") -> dict[OwnerKey, int]:
    """By the rule of the cluster's scheduler; empty where it has none, or no node was observed."""
    rule = rule_of(quotas.pool.cluster)
    if rule is NO_SHARE or quotas.nodes is None:
        return {}
    if rule is not FAIR_SHARE:
        return {key: _deserved_and_requested(quotas, key, resource) for key in quotas.owners}
    return {key: getattr(share, resource) for key, share in fair_shares_of(quotas).items()}


def _deserved_and_requested(quotas: PoolQuotas, key: OwnerKey, resource: str) -> int:
    quota = quotas.quota(key)
    requested: int = getattr(requested_by(quotas, key), resource)
    bounds: tuple[int | None, ...] = (getattr(quota.deserved, resource), getattr(quota.limit, resource))
    return min([requested, *(bound for bound in bounds if bound is not None)])


def _overhangs(after: PoolQuotas, changed: Edits, resource: str) -> Iterator[Overhang]:
    for key, values in changed.items():
        held, deserved = getattr(after.usage(key).non_preemptible, resource), getattr(values.deserved, resource)
        if over(held, deserved):
            yield Overhang(after.owners[key], held, deserved)


def _refusals(after: PoolQuotas, changed: Edits) -> Iterator[OwnerProblem]:
    for key, values in changed.items():
        for problem in below_non_preemptible_use(values, after.usage(key).non_preemptible):
            yield OwnerProblem(after.owners[key], problem)
    for department in _departments(after, changed):
        if department.enforce_deserved:
            yield from _sums(after, department)


def _departments(after: PoolQuotas, changed: Edits) -> list[Department]:
    """Those whose sums a change touches, each once."""
    owners = [after.owners[key] for key in changed]
    touched = {each.department_id if isinstance(each, Project) else each.pk for each in owners}
    return [each for each in after.departments if each.pk in touched]


def _sums(after: PoolQuotas, department: Department) -> Iterator[OwnerProblem]:
    total = after.deserved_by_projects.get(department.pk, Resources())
    own = after.quota(key_of(department)).deserved
    for problem in sum_over_department(total, own, department=department.name, pool=after.pool.name):
        yield OwnerProblem(department, problem)


def _warnings(before: PoolQuotas, after: PoolQuotas, changed: Edits) -> Iterator[OwnerProblem]:
    yield from _beyond_physical(before, after, changed)
    for department in _departments(after, changed):
        if not department.enforce_deserved:
            yield from _sums(after, department)
    for key, values in changed.items():
        for problem in _warnings_of(before, after, key, values):
            yield OwnerProblem(after.owners[key], problem)


def _beyond_physical(before: PoolQuotas, after: PoolQuotas, changed: Edits) -> Iterator[OwnerProblem]:
    """Per resource once for departments and once for projects, at the first whose deserved quota grows."""
    if after.nodes is None:
        return
    for kind, promised in (("department", after.deserved_of_departments), ("project", after.deserved_of_projects)):
        for name in DIMENSIONS:
            grown = [key for key, values in changed.items() if key.kind == kind and _grows(before, key, values, name)]
            amounts = getattr(promised, name), getattr(after.nodes, name)
            for problem in over_physical(*amounts, pool=after.pool.name, dimension=name) if grown else ():
                yield OwnerProblem(after.owners[grown[0]], problem)


def _grows(before: PoolQuotas, key: OwnerKey, values: QuotaValues, resource: str) -> bool:
    return (getattr(values.deserved, resource) or 0) > (getattr(before.quota(key).deserved, resource) or 0)


def _warnings_of(before: PoolQuotas, after: PoolQuotas, key: OwnerKey, values: QuotaValues) -> Iterator[Problem]:
    owner, used = after.owners[key], after.usage(key).allocated
    flavour = flavour_for(after.pool.cluster.flavour)
    if isinstance(owner, Project):
        yield from over_parent_limit(values, after.quota(OwnerKey("department", owner.department_id)).limit)
    yield from limit_below_use(values, used)
    members = [owner] if isinstance(owner, Project) else after.projects_of.get(owner.pk, ())
    yield from newly_reclaimable(
        node_pool=after.pool,
        projects=[each.pk for each in members],
        allocated=used,
        before=before.quota(key).deserved,
        after=values.deserved,
    )
    yield from weights_without_effect(values, flavour.traits.weights, scheduler=flavour.title)
