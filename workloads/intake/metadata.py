"""The metadata of a submitted object: a name and harmless words. Namespace, owners and ids are never a tenant's."""

from collections.abc import Mapping
from typing import Any, Final

from scheduling.priority import Preemptibility
from workloads.intake.names import (
    ANNOTATIONS,
    MANAGER_LABEL,
    PLACING,
    POD_ANNOTATIONS,
    PREEMPTIBILITY_LABEL,
    PRIORITY_LABEL,
    RAY_PRIORITY_LABEL,
    annotations,
    dns_label,
    label_key,
    label_value,
)
from workloads.intake.pods import priority_class
from workloads.intake.problems import visible
from workloads.intake.rules import ABSENT, Place, Rule, forbidden, table, text, wrong_type

PREEMPTIBILITIES: Final = tuple(str(each) for each in Preemptibility)
WISHES: Final = (PRIORITY_LABEL, PREEMPTIBILITY_LABEL, RAY_PRIORITY_LABEL)
_server = forbidden("The API server writes it.", "server_field")


def preemptibility(value: Any, place: Place) -> Any:
    """One of the three words, compared exactly."""
    if isinstance(value, str) and value in PREEMPTIBILITIES:
        return value
    message = f"{visible(value)!r} is no preemptibility."
    return place.refuse("preemptibility_unknown", message, PREEMPTIBILITIES)


def another_category(wanted: str | None, own: str) -> str:
    """Why it cannot be chosen; empty where it can. Time limits go by category, so a workload has that of its type."""
    if wanted is None or wanted.casefold() == own.casefold():
        return ""
    return f"A workload of this type is {own or 'of no category'}."


def namespace(value: Any, place: Place) -> Any:
    """The project's own namespace, which is then left out: Rung writes it."""
    if value != place.scope.namespace:
        own = place.scope.namespace
        return place.refuse(
            "foreign_namespace", f"Only {own} may stand here: {visible(value)!r} is not this project's.", (own,)
        )
    return ABSENT


def _labels(value: Any, place: Place) -> Any:
    """The tenant's labels and, among them, the wishes for priority and preemptibility."""
    if not isinstance(value, Mapping):
        return wrong_type(value, place, "an object")
    if len(value) > 64:
        return place.refuse("bad_length", f"{len(value)} labels; up to 64 are allowed.")
    rebuilt = {}
    for key, member in value.items():
        result = _label(key, member, place)
        if result is not ABSENT:
            rebuilt[key] = result
    return rebuilt


def _label(key: Any, value: Any, place: Place) -> Any:
    if key in WISHES:
        return (preemptibility if key == PREEMPTIBILITY_LABEL else priority_class)(value, place.at(key))
    if key == MANAGER_LABEL:
        place.report.warn(f"Label {MANAGER_LABEL} was left out: Rung writes it.")
        return ABSENT
    return ABSENT if label_key(key, place.at(key)) is ABSENT else label_value(value, place.at(key))


def _metadata(notes: Mapping[str, Rule]) -> Rule:
    return table(
        {
            "name": dns_label,
            "generateName": text(
                58, r"[a-z0-9][-a-z0-9]*", "a prefix of lower-case letters, digits and '-'", shortest=1, code="bad_name"
            ),
            "namespace": namespace,
            "labels": _labels,
            "annotations": annotations(notes),
            "ownerReferences": forbidden("Owners decide what is deleted: Rung writes them.", "owner_references"),
            "finalizers": forbidden("Finalizers keep objects from being deleted.", "finalizers"),
            **dict.fromkeys(
                (
                    "uid",
                    "resourceVersion",
                    "managedFields",
                    "creationTimestamp",
                    "deletionTimestamp",
                    "deletionGracePeriodSeconds",
                    "generation",
                    "selfLink",
                ),
                _server,
            ),
        },
        one_of=["name", "generateName"],
    )


metadata: Rule = _metadata({**ANNOTATIONS, **PLACING})
pod_object_metadata: Rule = _metadata({**POD_ANNOTATIONS, **PLACING})
