"""Read and write quotas as Run:ai's entries, one per node pool; set all of a project or department at once.

Source: Run:ai's `Resources` and `ResourcesNullable` (2.24). GPUs are devices, CPU is millicores, memory has a unit;
`-1` and null are no limit. Each resource has its over-quota weight; without one CPU and memory have that of the GPUs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from clusters.flavours.objects import plain_number
from clusters.inventory.models import Cluster, NodePool
from portal.kit.api.routes import PlannedWrite
from portal.kit.db.validation import raise_problems
from portal.kit.errors import Conflict, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.model.resources import DIMENSIONS, Limit
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota, Quota, Rank
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import planned_rule, reset_quota, set_department_quota, set_project_quota

UNITS: Final = {"Mib": 2**20, "MB": 10**6, "GB": 10**9}
WAYS: Final = {"deserved", "limit", "overQuotaWeight"}
RANKS: Final = {rank.value: "".join(word.capitalize() for word in rank.value.split("-")) for rank in Rank}
"""Rung's names and Run:ai's spelling of them."""
PoolWarnings = Mapping[NodePool, Sequence[Problem]]
"""What a change of quotas brings with it, by node pool; the pointers are those of the pool's entry."""


def entry_json(quota: Quota, pool: NodePool) -> dict[str, Any]:
    """A quota as an entry. What Rung does not count, and what has no limit, is null."""
    weights, rank = QuotaValues.of(quota).weights, RANKS[quota.rank]
    sizes = {"gpu": 1000, "cpu": 1, "memory": _unit_of(quota)[1]}
    found: dict[str, Any] = {
        dimension: {
            "deserved": _shown(getattr(quota.deserved, dimension), size),
            "limit": _shown(getattr(quota.limit, dimension), size),
            "overQuotaWeight": plain_number(weights[dimension]),
        }
        for dimension, size in sizes.items()
    }
    found["memory"]["units"] = _unit_of(quota)[0]
    return {"nodePool": {"id": str(pool.pk), "name": pool.name}, **found, "priority": rank, "rank": rank}


def _unit_of(quota: Quota) -> tuple[str, int]:
    """Mib where both amounts are whole ones, else MB."""
    whole = all(not (amount or 0) % UNITS["Mib"] for amount in (quota.memory_deserved, quota.memory_limit))
    return ("Mib", UNITS["Mib"]) if whole else ("MB", UNITS["MB"])


def _shown(amount: int | None, size: int) -> float | int | None:
    if amount is None:
        return None
    return amount // size if amount % size == 0 else float(Decimal(amount) / size)


def parse_entry(entry: Mapping[str, Any], *, pointer: str, before: QuotaValues | None = None) -> QuotaValues:
    """What an entry says; absent keys keep the values `before`. Raises Refused with a pointer at each bad field."""
    problems: list[Problem] = []
    present = before or QuotaValues()
    amounts = {
        (dimension, kind): _amount(entry, dimension, kind, present, pointer, problems)
        for dimension in DIMENSIONS
        for kind in ("deserved", "limit")
    }
    gpu, cpu, memory = _weights(entry, before, pointer, problems)
    rank = _rank(entry, present.rank, pointer, problems)
    if problems:
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)
    deserved, limit = (Limit(*(amounts[dimension, kind] for dimension in DIMENSIONS)) for kind in ("deserved", "limit"))
    return QuotaValues(deserved, limit, gpu, rank, cpu, memory)


def _amount(
    entry: Mapping[str, Any], dimension: str, kind: str, present: QuotaValues, pointer: str, problems: list[Problem]
) -> int | None:
    part = entry.get(dimension, {})
    if part is None:  # null clears the whole resource
        part = dict.fromkeys(("deserved", "limit"))
    if kind not in part:
        found: int | None = getattr(getattr(present, kind), dimension)
        return found
    given, at = part[kind], f"{pointer}/{dimension}/{kind}"
    if given is None or (kind == "limit" and given == -1):
        return 0 if (dimension, kind) == ("gpu", "deserved") else None
    size = {"gpu": 1000, "cpu": 1, "memory": UNITS.get(part.get("units", ""), 0)}[dimension]
    if not size:
        problems.append(Problem(f"{pointer}/memory/units", "unknown_unit", _("Enter the unit."), allowed=tuple(UNITS)))
        return None
    exact = _whole(given, size)
    if exact is None:
        problems.append(
            Problem(at, "not_exact", _("Enter a number from 0 with at most 3 decimals; -1 means no limit."))
        )
    return exact


def _whole(given: object, size: int) -> int | None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        found = Decimal(str(given)) * size
        return int(found) if found == found.to_integral_value() and 0 <= found < 10**18 else None
    except (InvalidOperation, OverflowError):
        return None


def _weights(
    entry: Mapping[str, Any], before: QuotaValues | None, pointer: str, problems: list[Problem]
) -> tuple[float, float | None, float | None]:
    """Of GPUs, CPU and memory; None is that of GPUs. What is absent stays as it was, also where GPUs get another."""
    present = before.weights if before else {}
    found = {name: _weight(entry, name, present.get(name), pointer, problems) for name in DIMENSIONS}
    gpu = QuotaValues().over_quota_weight if found["gpu"] is None else found["gpu"]
    cpu, memory = (None if found[name] == gpu else found[name] for name in ("cpu", "memory"))
    return gpu, cpu, memory


def _weight(
    entry: Mapping[str, Any], name: str, present: float | None, pointer: str, problems: list[Problem]
) -> float | None:
    part = entry.get(name) or {}
    if "overQuotaWeight" not in part:
        return present
    given = part["overQuotaWeight"]
    if given is None:
        return present if name == "gpu" else None
    exact = _whole(given, 1000)
    if exact is None:
        text = _("Enter a number from 0 with at most 3 decimals.")
        problems.append(Problem(f"{pointer}/{name}/overQuotaWeight", "not_exact", text))
        return present
    return exact / 1000


def _rank(entry: Mapping[str, Any], present: str, pointer: str, problems: list[Problem]) -> str:
    """`rank` in the newer documents, `priority` in the client."""
    ranks = [(name, entry[name]) for name in ("rank", "priority") if entry.get(name) is not None]
    if not ranks:
        return present
    by_word = {_word(name): name for name in RANKS}
    found = {by_word.get(_word(value)) for _name, value in ranks}
    rank = found.pop()
    if found or rank is None:
        text = _("Unknown rank.")
        problems.append(Problem(f"{pointer}/{ranks[0][0]}", "unknown_rank", text, allowed=tuple(RANKS.values())))
        return present
    return rank


def _word(text: object) -> str:
    return str(text).replace("-", "").replace("_", "").replace(" ", "").lower()


def shape_problems(entries: object) -> Iterator[Problem]:
    """What is wrong with the shape of a list of entries, before any of them is read."""
    if not isinstance(entries, list):
        yield Problem("/resources", "not_a_list", _("Must be a list with one entry per node pool."))
        return
    for number, entry in enumerate(entries):
        yield from _entry_shape_problems(f"/resources/{number}", entry)


def _entry_shape_problems(at: str, entry: object) -> Iterator[Problem]:
    if not isinstance(entry, dict):
        yield Problem(at, "not_an_object", _("Must be an object with nodePool, gpu, cpu and memory."))
        return
    pool = entry.get("nodePool")
    if not isinstance(pool, dict) or not isinstance(pool.get("id"), str):
        yield Problem(f"{at}/nodePool/id", "required", _("Send the id of the node pool."))
    yield from values_shape_problems(at, entry)


def values_shape_problems(at: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the shape of an entry's amounts, weights and rank."""
    known = {"nodePool", "priority", "rank", "warnings", *DIMENSIONS}  # what an answer says may be sent back
    for name in entry.keys() - known:
        yield Problem(f"{at}/{name[:100]}", "unknown_field", _("Unknown field."), allowed=tuple(sorted(known)))
    for name in DIMENSIONS:
        part = entry.get(name)
        if part is None:
            continue
        if not isinstance(part, dict) or part.keys() - WAYS - ({"units"} if name == "memory" else set()):
            yield Problem(
                f"{at}/{name}", "malformed", _("Allowed: deserved, limit, overQuotaWeight; for memory also units.")
            )


@transaction.atomic
def set_resources(
    *, owner: Department | Project, entries: object, actor: Actor, whole: bool, reason: str = ""
) -> PoolWarnings:
    """Set the quota of every pool that is named. `whole`: others lose theirs; otherwise absent keys keep their value.

    Answers what the console would warn of. Refused or Conflict as the single quota is, with the pointer of the entry.
    """
    _permit(owner, actor)
    raise_problems(shape_problems(entries))
    named: Sequence[Mapping[str, Any]] = entries if isinstance(entries, list) else []
    rows = _rows(owner)
    seen: set[int] = set()
    warnings: dict[NodePool, tuple[Problem, ...]] = {}
    for number, entry in enumerate(named):
        at = f"/resources/{number}"
        pool = _pool(owner.cluster, entry["nodePool"]["id"], f"{at}/nodePool/id", seen)
        row = rows.get(pool.pk)
        before = QuotaValues.of(row) if row is not None and not whole else None
        with refusals_at(at):
            values = parse_entry(entry, pointer="", before=before)
            warnings[pool] = _set(owner, pool, values, actor=actor, reason=reason)
    if whole:
        for pool_id, row in rows.items():
            if pool_id not in seen:
                warnings[row.node_pool] = reset_quota(quota=row, actor=actor, reason=reason)
    return warnings


def planned_resources(owner: Department | Project, entries: object, *, whole: bool) -> PlannedWrite | None:
    """The plan of what `set_resources` sets; None where no quota is named or removed."""
    raise_problems(shape_problems(entries))
    named: Sequence[Mapping[str, Any]] = entries if isinstance(entries, list) else []
    rows, seen = _rows(owner), set[int]()
    values: dict[str, QuotaValues | None] = {}
    for number, entry in enumerate(named):
        at = f"/resources/{number}"
        pool = _pool(owner.cluster, entry["nodePool"]["id"], f"{at}/nodePool/id", seen)
        row = rows.get(pool.pk)
        values[pool.name] = parse_entry(entry, pointer=at, before=QuotaValues.of(row) if row and not whole else None)
    if whole:
        values |= {row.node_pool.name: None for row in rows.values() if row.node_pool_id not in seen}
    quotas = [
        planned_rule(owner, "", pool=pool, values=each.as_fields() if each else None) for pool, each in values.items()
    ]
    return ("quotas", {"quotas": quotas, "reason": ""}) if quotas else None


def _permit(owner: Department | Project, actor: Actor) -> None:
    """Also where nothing is named."""
    if isinstance(owner, Project):
        require(actor, Permission.MANAGE_PROJECT_QUOTA, project=owner)
    else:
        require(actor, Permission.MANAGE_DEPARTMENT_QUOTA, department=owner)


def _rows(owner: Department | Project) -> Mapping[int, ProjectQuota | DepartmentQuota]:
    if isinstance(owner, Project):
        return {row.node_pool_id: row for row in ProjectQuota.objects.filter(project=owner).select_related("node_pool")}
    rows = DepartmentQuota.objects.filter(department=owner).select_related("node_pool")
    return {row.node_pool_id: row for row in rows}


def _pool(cluster: Cluster, name: str, pointer: str, seen: set[int]) -> NodePool:
    pools = {str(pool.pk): pool for pool in cluster.node_pools.all()}
    found = pools.get(name)
    if found is None:
        text = _("%(cluster)s has no such node pool.") % {"cluster": cluster.name}
        raise ValidationFailed.at(pointer, "unknown_node_pool", text, allowed=tuple(pools))
    if found.pk in seen:
        raise ValidationFailed.at(pointer, "repeated", _("Duplicate node pool."))
    seen.add(found.pk)
    return found


def _set(
    owner: Department | Project, pool: NodePool, values: QuotaValues, *, actor: Actor, reason: str
) -> tuple[Problem, ...]:
    how: dict[str, Any] = {"node_pool": pool, "values": values, "actor": actor, "reason": reason}
    if isinstance(owner, Project):
        return set_project_quota(project=owner, **how).warnings
    return set_department_quota(department=owner, **how).warnings


@contextmanager
def refusals_at(pointer: str) -> Iterator[None]:
    """What is refused inside points at its entry."""
    try:
        yield
    except (ValidationFailed, Conflict) as error:
        problems = [replace(each, pointer=pointer + each.pointer) for each in error.problems]
        raise type(error)(error.message, code=error.code, problems=problems) from None
