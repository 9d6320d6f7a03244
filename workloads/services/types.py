"""A workload type's defaults. The API's PUT acts at once and keeps the plan it would have shown."""

from portal.audit.services import record
from portal.core.actors import Actor
from workloads.dictionary_rows import current_draft
from workloads.models import WorkloadType
from workloads.permissions import require_dictionary
from workloads.services.denials import verb
from workloads.services.plans import after_of, carry_out, draw


def update_type(
    *,
    type: WorkloadType,  # noqa: A002 - the house's word
    actor: Actor,
    priority: str | None = None,
    preemptibility: str | None = None,
    category: str | None = None,
) -> WorkloadType:
    """Set other defaults by name; None leaves a field. Existing workloads are never touched.

    Refused with a pointer for unknown names and for types whose pair is fixed.
    """
    given = {"priority": priority, "preemptibility": preemptibility, "category": category}
    change = {"op": "type", "name": type.name, **{name: value for name, value in given.items() if value is not None}}
    with verb(actor=actor, action="workload_type.update", entity_type="workloadtype", entity_name=type.name):
        require_dictionary(actor)
        before = current_draft()
        after = after_of(before, change)
        plan = draw("type", change, actor, before, after)
        carry_out(plan, before, after, actor)
        shown = {"plan": str(plan.pk), "sentence": plan.effect["sentence"], "types": plan.effect["types"]}
        record(actor, "workload_type.update", type, detail=shown)
    return WorkloadType.objects.select_related("category", "priority").get(pk=type.pk)
