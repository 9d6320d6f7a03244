"""What a project refuses of a submission, in one answer: policy, kind, placement, pools, quota, gang size."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from clusters.inventory.models import NodePool
from portal.kit.errors import BadRequest, Conflict, ValidationFailed, check_together, raise_with
from scheduling.model.preemptibility import Preemptibility
from tenants.organisation.models import Project
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.rules.resolution import Effective
from workloads.forecast.selectors.placement_validation import check_gang_capacity, check_kind_scheduled, check_placement
from workloads.forecast.selectors.pool_selection import (
    check_kind_served,
    check_priority_cap,
    check_quota,
    pick_pool,
    pools_for,
)
from workloads.intake import ReadSpec, WorkloadSpec
from workloads.intake.services import SubmissionRefused
from workloads.policies.services import check_enforceable, effective_pair, resolve_pair, type_of

Check = Callable[[], object]


def checked(
    spec: WorkloadSpec, type_: WorkloadType, project: Project
) -> tuple[Effective, Sequence[NodePool], NodePool]:
    """The effective pair, the pools and the first of them whose quotas could ever hold it, or every refusal."""
    try:
        effective, *_, pools = check_together(
            lambda: resolve_pair(spec.request, type_, project),
            lambda: check_kind_served(spec, project),
            lambda: check_kind_scheduled(spec, project),
            lambda: check_placement(spec, project),
            lambda: pools_for(spec, project),
        )
    except (BadRequest, ValidationFailed, Conflict) as error:
        raise_with(error, *_size_checks(ReadSpec(spec), project))
    *_, pool, _gang = check_together(
        lambda: check_enforceable(effective, project),
        lambda: check_priority_cap(spec, effective, project),
        lambda: pick_pool(spec, effective, project, pools),
        lambda: check_gang_capacity(spec, project, pools),
    )
    return effective, pools, pool


def check_rest(read: ReadSpec | None, project: Project) -> None:
    """What the project refuses of the rest of a refused submission, all of it in one refusal."""
    check_together(*(_rest_checks(read, project) if read else ()))


@contextmanager
def naming_rest(project: Project) -> Iterator[None]:
    """The refusal of a submission in the block also names what the project refuses of the rest of it."""
    try:
        yield
    except SubmissionRefused as error:
        rest = error.read
        raise_with(error, lambda: check_rest(rest, project))


def _rest_checks(read: ReadSpec, project: Project) -> list[Check]:
    spec = read.spec
    checks: list[Check] = [lambda: check_kind_served(spec, project), lambda: check_kind_scheduled(spec, project)]
    if read.pair:
        checks.append(lambda: resolve_pair(spec.request, type_of(spec), project))
    if read.counts:
        checks.append(lambda: check_placement(spec, project))
    if read.pools:
        checks += [lambda: pools_for(spec, project), *_size_checks(read, project)]
    return checks


def _size_checks(read: ReadSpec, project: Project) -> list[Check]:
    """None where a pool is unknown: quotas of the right one may differ."""
    try:
        pools = pools_for(read.spec, project)
    except ValidationFailed:
        return []
    spec, effective = read.spec, _effective_of(read, project)
    requested = effective.preemptibility if effective else _requested(spec)
    preemptible = requested != Preemptibility.NON_PREEMPTIBLE
    checks: list[Check] = [lambda: check_quota(spec, project, pools, preemptible=preemptible)]
    if effective:
        checks += [
            lambda: check_enforceable(effective, project),
            lambda: check_priority_cap(spec, effective, project),
        ]
    return [*checks, lambda: check_gang_capacity(spec, project, pools)] if read.counts else checks


def _effective_of(read: ReadSpec, project: Project) -> Effective | None:
    """Without the rules of policies; None where it cannot be resolved."""
    try:
        return effective_pair(read.spec.request, type_of(read.spec), project) if read.pair else None
    except (BadRequest, ValidationFailed):
        return None


def _requested(spec: WorkloadSpec) -> str | None:
    """The preemptibility that holds whatever the priority becomes."""
    return spec.request.explicit_preemptibility or spec.request.label_preemptibility
