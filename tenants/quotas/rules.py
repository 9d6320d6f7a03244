"""A quota as values, the rules about it, and amounts as people type and read them.

Source of the rules: Run:ai's quota page. Deserved is guaranteed and holds all non-preemptible work; limit caps deserved
and over-quota; a department bounds its projects; more than the physical GPUs may be promised, but never silently.
Amounts: GPUs as devices ("6.5"), CPU as cores ("64", "500m"), memory as "512Gi".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Final

from django.utils.translation import gettext as _

from clusters.ports.flavour import KeptWeights
from portal.kit.errors import Problem
from portal.kit.pages.formatting import gpus_text
from scheduling.model.resources import DIMENSIONS, LARGEST, RANGES, Limit, Resources, decimal_text
from tenants.quotas.models import Quota, Rank

HEAVIEST: Final = 1_000_000
NOTHING_DESERVED: Final = Limit(gpu=0)


@dataclass(frozen=True, slots=True)
class QuotaValues:
    """What a quota says. Units: GPU thousandths, CPU millicores, memory bytes; None: not counted, or no limit.

    The over-quota weight is that of GPUs; None for CPU or memory: the same.
    """

    deserved: Limit = NOTHING_DESERVED
    limit: Limit = field(default_factory=Limit)
    over_quota_weight: float = 2
    rank: str = Rank.MEDIUM_LOW.value
    cpu_weight: float | None = None
    memory_weight: float | None = None

    @classmethod
    def of(cls, quota: Quota) -> "QuotaValues":
        return cls(
            quota.deserved, quota.limit, quota.over_quota_weight, quota.rank, quota.cpu_weight, quota.memory_weight
        )

    @property
    def weights(self) -> dict[str, float]:
        """The over-quota weight of each resource."""
        own = {"gpu": self.over_quota_weight, "cpu": self.cpu_weight, "memory": self.memory_weight}
        return {name: self.over_quota_weight if weight is None else weight for name, weight in own.items()}

    def as_fields(self) -> dict[str, object]:
        """The same as columns of a row."""
        amounts = {
            f"{dimension}_{kind}": getattr(getattr(self, kind), dimension)
            for kind in ("deserved", "limit")
            for dimension in DIMENSIONS
        }
        names = ("over_quota_weight", "cpu_weight", "memory_weight", "rank")
        return {**amounts, **{name: getattr(self, name) for name in names}}


def amount_text(dimension: str, amount: int) -> str:
    """An amount with its unit: "6 GPUs", "4 CPU", "16Gi memory"."""
    if dimension == "gpu":
        return gpus_text(amount)
    return str(Resources(**{dimension: amount})) if amount else f"0 {'CPU' if dimension == 'cpu' else dimension}"


def amounts_text(total: Resources) -> str:
    """`72 GPUs, 8 CPU`."""
    amounts = {name: getattr(total, name) for name in DIMENSIONS}
    return ", ".join(amount_text(name, amount) for name, amount in amounts.items() if amount or name == "gpu")


def readable_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Columns of a quota for a reader who has no units: amounts as text; None stays: not counted, or no limit."""
    return {name: _readable(name, value) for name, value in fields.items()}


def _readable(name: str, value: object) -> object:
    dimension, _, kind = name.partition("_")
    return amount_text(dimension, value) if kind in {"deserved", "limit"} and isinstance(value, int) else value


def value_problems(values: QuotaValues) -> Iterator[Problem]:
    """What is wrong with the values themselves."""
    if values.deserved.gpu is None:
        yield Problem("/gpu/deserved", "required", _("Enter the deserved GPUs; 0 means no guarantee."))
    for kind in ("deserved", "limit"):
        for dimension in DIMENSIONS:
            amount = getattr(getattr(values, kind), dimension)
            if amount is not None and not 0 <= amount <= LARGEST:
                text = _("Amount out of range: %(range)s.") % {"range": RANGES[dimension]}
                yield Problem(f"/{dimension}/{kind}", "out_of_range", text)
    own = {"gpu": values.over_quota_weight, "cpu": values.cpu_weight, "memory": values.memory_weight}
    for name, weight in own.items():
        if weight is not None and not (0 <= weight <= HEAVIEST and weight == round(weight, 3)):
            text = _("The weight must be a number from 0 to %(most)s with at most 3 decimals.") % {"most": HEAVIEST}
            yield Problem(f"/{name}/overQuotaWeight", "out_of_range", text)
    if values.rank not in Rank.values:
        yield Problem("/rank", "unknown_rank", _("Unknown rank."), allowed=tuple(Rank.values))
    yield from _limits_below_deserved(values)


def _limits_below_deserved(values: QuotaValues) -> Iterator[Problem]:
    for dimension in DIMENSIONS:
        deserved, limit = getattr(values.deserved, dimension), getattr(values.limit, dimension)
        if deserved is not None and limit is not None and limit < deserved:
            yield _compare(
                f"/{dimension}/limit",
                "limit_below_deserved",
                _("The limit of %(limit)s is lower than the deserved quota of %(deserved)s."),
                dimension,
                limit=limit,
                deserved=deserved,
            )


def below_non_preemptible_use(values: QuotaValues, held: Resources) -> Iterator[Problem]:
    """Where the quota would fall below what non-preemptible work holds: that work cannot be evicted to make it true."""
    for dimension in DIMENSIONS:
        for kind in ("deserved", "limit"):
            bound, now = getattr(getattr(values, kind), dimension), getattr(held, dimension)
            if bound is not None and now > bound:
                yield _compare(
                    f"/{dimension}/{kind}",
                    "below_non_preemptible_use",
                    _("Non-preemptible workloads use %(held)s, more than %(requested)s. Stop some of them first."),
                    dimension,
                    requested=bound,
                    held=now,
                )
                break


def sum_over_department(total: Resources, parent: Limit, *, department: str, pool: str) -> Iterator[Problem]:
    """Where the projects' deserved quotas add up to more than their department's."""
    for dimension in DIMENSIONS:
        bound, together = getattr(parent, dimension), getattr(total, dimension)
        if bound is not None and together > bound:
            yield _compare(
                f"/{dimension}/deserved",
                "sum_over_department",
                _("In %(pool)s the projects of %(department)s deserve %(sum)s in total, but the department %(own)s."),
                dimension,
                words={"department": department, "pool": pool},
                sum=together,
                own=bound,
            )


def over_parent_limit(values: QuotaValues, parent: Limit) -> Iterator[Problem]:
    """Where a project deserves more than its department may ever use."""
    for dimension in DIMENSIONS:
        bound, deserved = getattr(parent, dimension), getattr(values.deserved, dimension)
        if bound is not None and deserved is not None and deserved > bound:
            yield _compare(
                f"/{dimension}/deserved",
                "over_department_limit",
                _("The department's limit is %(limit)s, so %(deserved)s cannot be used."),
                dimension,
                limit=bound,
                deserved=deserved,
            )


def over_physical(promised: int, physical: int | None, *, pool: str, dimension: str = "gpu") -> Iterator[Problem]:
    """Where all deserved quotas of a pool add up to more than was last observed in it."""
    if physical is not None and promised > physical:
        yield _compare(
            f"/{dimension}/deserved",
            "over_physical",
            _("Deserved quotas in %(pool)s add up to %(promised)s, but it has %(physical)s."),
            dimension,
            words={"pool": pool},
            promised=promised,
            physical=physical,
        )


def limit_below_use(values: QuotaValues, allocated: Resources) -> Iterator[Problem]:
    """Where the limit falls below what runs now: nothing is evicted for it, but nothing more starts."""
    for dimension in DIMENSIONS:
        bound, now = getattr(values.limit, dimension), getattr(allocated, dimension)
        if bound is not None and now > bound:
            yield _compare(
                f"/{dimension}/limit",
                "limit_below_use",
                _("%(used)s are in use. With a limit of %(limit)s nothing is evicted, but nothing else starts."),
                dimension,
                used=now,
                limit=bound,
            )


def weights_without_effect(values: QuotaValues, kept: KeptWeights, *, scheduler: str) -> Iterator[Problem]:
    """Where a scheduler has fewer weights than the quota says. `kept`: what it has."""
    weights = {name: f"{weight:.7g}" for name, weight in values.weights.items()}
    other = next((name for name in ("cpu", "memory") if weights[name] != weights["gpu"]), None)
    words = {"scheduler": scheduler, **weights}
    if other and kept == "none":
        text = _("%(scheduler)s shares no surplus by weight: over-quota weights have no effect.")
        yield Problem(f"/{other}/overQuotaWeight", "one_weight", text % words, numbers=weights)
    elif other and kept != "resources":
        text = _(
            "%(scheduler)s has one over-quota weight per queue: it gets that of the GPUs, %(gpu)s, "
            "not %(cpu)s for CPU and %(memory)s for memory."
        )
        yield Problem(f"/{other}/overQuotaWeight", "one_weight", text % words, numbers=weights)
    whole = max(round(values.over_quota_weight), 1)
    if kept == "whole" and whole != values.over_quota_weight:
        text = _("%(scheduler)s takes whole weights from 1: it gets %(whole)s instead of %(gpu)s.")
        words["whole"] = str(whole)
        yield Problem("/gpu/overQuotaWeight", "whole_weight", text % words, numbers={"weight": str(whole)})


def _compare(
    pointer: str, code: str, text: str, dimension: str, *, words: dict[str, str] | None = None, **amounts: int
) -> Problem:
    """A problem whose amounts are in its sentence and, as numbers with their unit, in its `numbers`."""
    numbers = {name: amount_text(dimension, amount) for name, amount in amounts.items()}
    return Problem(pointer, code, text % {**numbers, **(words or {})}, numbers=numbers)


def parse_amount(dimension: str, text: str) -> int | None:
    """GPU thousandths, CPU millicores or memory bytes; None for empty text. Raises ValueError when it is not exact."""
    cleaned = text.strip()
    return int(getattr(Resources.of(**{dimension: cleaned}), dimension)) if cleaned else None


def format_amount(dimension: str, amount: int | None) -> str:
    """The same amount as `parse_amount` reads it; empty for None."""
    if amount is None:
        return ""
    return str(Resources(memory=amount)).split()[0] if dimension == "memory" else decimal_text(amount)


def weight_of(value: str) -> float:
    """An over-quota weight of a filter, exact to the thousandth."""
    return gpu_milli(value) / 1000


def gpu_milli(value: str) -> int:
    """GPU devices as thousandths; more exact than that is no amount."""
    try:
        exact = Decimal(value) * 1000
        found = int(exact)
    except (InvalidOperation, OverflowError):
        raise ValueError(value) from None
    if found != exact or abs(found) >= 10**18:
        raise ValueError(value)
    return found
