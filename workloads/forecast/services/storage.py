"""A forecast that was shown is stored with the question that was put to the model, in case a submission follows it.

A submission itself does nothing for it; `scoring` finds it by subject, project and request.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from clusters.inventory.models import NodePool
from portal.kit.security import rate_limit
from portal.kit.security.actors import Actor
from scheduling.forecast.scenario import Scenario
from scheduling.model.decisions import Evict, OutcomeKind
from scheduling.model.snapshot import Snapshot
from tenants.organisation.models import Project
from workloads.forecast.models import StoredForecast
from workloads.forecast.rules.forecast import Forecast, ForecastBasis, Verdict
from workloads.forecast.selectors.observed_groups import ANY_POOL, workload_of
from workloads.forecast.selectors.placement_validation import nodes_of
from workloads.forecast.selectors.pod_groups import Above
from workloads.forecast.selectors.preview import forecast
from workloads.intake import WorkloadSpec

FORECASTS_A_MINUTE: Final = 300
TOO_MANY: Final = f"You can ask for {FORECASTS_A_MINUTE} forecasts a minute. Wait and try again."
MOST_PODS: Final = 1000
"""Of larger clusters the question is not stored: 18 ms of processor time for 1,000 pod groups, 160 ms for 10,000."""


def stored_forecast(*, spec: WorkloadSpec, project: Project, actor: Actor, above: Above = ()) -> Forecast:
    """A forecast as `selectors.preview.forecast` makes it, stored in case its subject submits the same.

    One that counts others as submitted is not stored: workloads that differ only in their names have one fingerprint.
    TooManyRequests: see `count_forecast`. Call it outside of a transaction that is rolled back.
    """
    count_forecast(actor)
    found = forecast(spec=spec, project=project, actor=actor, above=above)
    if not above:
        store(found, spec=spec, project=project, actor=actor)
    return found


def count_forecast(actor: Actor) -> None:
    """TooManyRequests: the subject has asked for `FORECASTS_A_MINUTE` within a minute."""
    rate_limit.hit("forecast", _subject(actor), limit=FORECASTS_A_MINUTE, per=60, refusal=TOO_MANY)


def store(found: Forecast, *, spec: WorkloadSpec, project: Project, actor: Actor) -> None:
    """Store a forecast that was shown. Without an outcome of the model nothing is stored."""
    if found.basis is not None:
        _store(found, found.basis, spec, project, actor)


def _store(found: Forecast, basis: ForecastBasis, spec: WorkloadSpec, project: Project, actor: Actor) -> None:
    cluster, snapshot = project.cluster, basis.snapshot
    pool = cluster.node_pools.get(name=found.pool)
    victims = basis.outcome.victims if found.victims else ()
    StoredForecast.objects.create(
        cluster=cluster,
        project=project,
        subject=_subject(actor),
        fingerprint=fingerprint_of(spec.as_json(), found.effective.priority.value, str(found.effective.preemptibility)),
        at=datetime.fromtimestamp((snapshot.now or 0) / 1_000_000, tz=UTC),
        data_at=cluster.observed_at,
        flavour=cluster.flavour,
        pool_name=found.pool,
        verdict=found.verdict,
        starts=found.verdict is not Verdict.WAITS and found.placed >= spec.min_member,
        victims=sorted({key for evict in victims if not _moves(evict) for key in _keys(evict)}),
        doubts=[str(each.code) for each in found.doubts],
        digests=digests_of(snapshot, pool),
        input=_question(cluster.flavour, basis),
    )


def digests_of(snapshot: Snapshot, pool: NodePool) -> dict[str, str]:
    """Fingerprints of the nodes and quotas that a forecast for this pool depends on, not of those of other pools."""
    known = snapshot.digests
    nodes = [known["node", node.name] for node in nodes_of(snapshot, pool)]
    quotas = [known["rules", ""], *(known.get(("quotas", each), "") for each in (pool.name, ANY_POOL))]
    return {
        name: sha256("".join(each).encode()).hexdigest()[:16] for name, each in (("nodes", nodes), ("quotas", quotas))
    }


def _subject(actor: Actor) -> str:
    return f"{actor.kind}:{actor.id}"


def fingerprint_of(spec: Mapping[str, Any], value: int, preemptibility: str) -> str:
    """Of everything but the name: a generated one is not known beforehand."""
    manifest = spec["manifest"]
    metadata = {key: each for key, each in manifest["metadata"].items() if key not in {"name", "generateName"}}
    request = {**spec, "name": "", "manifest": {**manifest, "metadata": metadata}}
    text = json.dumps([request, value, preemptibility], sort_keys=True, separators=(",", ":"), default=str)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _moves(evict: Evict) -> bool:
    return all(pod in evict.moves_to for pod in evict.pods)


def _keys(evict: Evict) -> Iterable[str]:
    """The workload's id; of pods that are no workload's each pod."""
    owner = workload_of(evict.victim.name)
    return [owner] if owner else [f"pod:{uid}" for uid in evict.pods]


def _question(flavour: str, basis: ForecastBasis) -> bytes | None:
    if len(basis.snapshot.groups) > MOST_PODS:
        return None
    requested = Scenario(flavour, basis.snapshot, basis.candidates).as_json()
    return zlib.compress(json.dumps(requested, separators=(",", ":")).encode(), level=1)


def scenario_of(row: StoredForecast) -> Scenario | None:
    """The question of an unexplained forecast with what was observed; None where it was not stored."""
    if row.input is None:
        return None
    question = Scenario.from_json(json.loads(zlib.decompress(bytes(row.input))))
    kind = _KINDS[bool(row.evicted_pods)] if row.started_at else OutcomeKind.PENDING
    return Scenario(question.flavour, question.snapshot, question.candidates, kind, frozenset(row.evicted_pods))


_KINDS: Final = {False: OutcomeKind.PLACED, True: OutcomeKind.PREEMPTS}
