"""The rights Rung needs in a cluster, and the manifests that grant exactly these. Pure.

No secrets, no exec, no impersonation, nothing that hands on rights (`escalate`, `bind`, roles and bindings). Asking
for one's own rights (SelfSubjectAccessReview) and discovery are open to every signed-in subject by Kubernetes' own
default roles.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from clusters.flavours.registry import flavour_for
from clusters.ports.flavour import SchedulerConfiguration, Traits, VisibilityApi
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import (
    BUDGET,
    EVENT,
    KAI_TOPOLOGY,
    KUEUE_TOPOLOGY,
    MANAGED_BY,
    MANAGER,
    NODE,
    PARENTS,
    POD,
    SERVICE,
    VOLCANO_HYPER_NODE,
    WORKLOAD_KINDS,
)
from clusters.ports.objects import NAMESPACE as NAMESPACE_KIND

READ: Final = ("get", "list", "watch")
WRITE: Final = ("create", "update", "delete")
ROLE: Final = "rung"
GUARD: Final = "rung-keeps-to-its-own"
OURS: Final = f"metadata.?labels[?'{MANAGED_BY}'].orValue('') == '{MANAGER}'"
KEPT: Final = (
    ("object", "Rung writes only objects with its label."),
    ("oldObject", "Rung changes and deletes only objects with its label."),
    ("namespaceObject", "Rung writes only in namespaces with its label."),
)
EVERY_WRITE: Final[dict[str, list[str]]] = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*"],
    "operations": ["CREATE", "UPDATE", "DELETE"],
}
UNREVIEWABLE: Final = {
    "name": "no-question",
    "expression": "!(request.resource.group in ['authorization.k8s.io', 'authentication.k8s.io'])",
}
NAMESPACE: Final = "rung-system"
ACCOUNT: Final = "rung"


HEAD: Final = """\
# Service account for Rung in a cluster with the scheduler flavour {flavour}, and its rights.{beside}
#   kubectl apply -f this-file
# A token (for as long as the API server allows), and the authority that signed the API server's certificate:
#   kubectl -n {namespace} create token {account} --duration=8760h
#   kubectl -n {namespace} get configmap kube-root-ca.crt -o jsonpath='{{.data.ca\\.crt}}'
# Take everything back: kubectl delete -f this-file
"""


BESIDE: Final = " With those for {beside},\n# while the cluster goes from one to the other."


@dataclass(frozen=True, slots=True)
class RequiredAccess:
    """Verbs on one resource in every namespace, and why Rung needs them."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    subresource: str = ""
    name: str = ""  # of the only object; empty: all of them

    @property
    def path(self) -> str:
        """`pods/log`, as a rule names it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def full_name(self) -> str:
        """`jobs.batch`: the resource with its group."""
        return f"{self.path}.{self.group}" if self.group else self.path


def required_access(flavour: str, *, beside: str = "") -> tuple[RequiredAccess, ...]:
    """Everything Rung does in a cluster of this flavour. Kinds whose CRD is not installed are named all the same.

    `beside`: a second flavour, while the cluster goes from one to the other. KeyError: no such flavour.
    """
    if beside:
        return tuple(dict.fromkeys((*required_access(flavour), *required_access(beside))))
    dialect = flavour_for(flavour)
    traits = dialect.traits
    owned = {(kind.group, kind.plural): kind for kind in (*dialect.kinds(), *WORKLOAD_KINDS)}
    return (
        RequiredAccess("", NODE.plural, READ, "capacity of the node pools"),
        RequiredAccess("", EVENT.plural, READ, "why pods wait and who evicted them"),
        RequiredAccess("", POD.plural, READ + WRITE, "status of workloads; bare pods that were submitted"),
        RequiredAccess("", SERVICE.plural, ("get", *WRITE), "addresses of inferences"),
        RequiredAccess("", POD.plural, ("get",), "logs of workloads", subresource="log"),
        *(RequiredAccess(kind.group, kind.plural, READ + WRITE, _why(kind)) for kind in owned.values() if kind != POD),
        *(RequiredAccess(kind.group, kind.plural, READ + WRITE, "gangs of workloads") for kind in traits.beside),
        *(RequiredAccess(kind.group, kind.plural, READ, "the scheduler's reasons") for kind in _looked_at(traits)),
        *_configured(traits.configuration),
        *_divided(traits),
        *_requested(traits.inquiries),
    )


def optional_access(flavour: str) -> tuple[RequiredAccess, ...]:
    """What Rung reads where it may, for more exact forecasts: nothing is refused without it. KeyError: no flavour."""
    if not flavour_for(flavour).traits.spares_budgets:
        return ()
    return (RequiredAccess(BUDGET.group, BUDGET.plural, ("list",), "which victims the scheduler avoids"),)


def _looked_at(traits: Traits) -> Iterable[Kind]:
    """Companion objects of workloads are read anyway."""
    return (kind for kind in traits.event_sources if kind not in traits.beside)


def _configured(by: SchedulerConfiguration | None) -> Iterable[RequiredAccess]:
    if by is not None:
        yield RequiredAccess(by.ref.kind.group, by.ref.kind.plural, ("get",), by.why, name=by.ref.name)


def _divided(traits: Traits) -> Iterable[RequiredAccess]:
    if traits.shards is not None:
        kind, _label = traits.shards
        yield RequiredAccess(kind.group, kind.plural, ("list",), "which scheduler serves which node pool")


def _requested(about: VisibilityApi | None) -> Iterable[RequiredAccess]:
    if about is not None:
        yield RequiredAccess(about.queue.group, about.queue.plural, ("get",), about.why, subresource=about.part)


def _why(kind: Kind) -> str:
    if kind == NAMESPACE_KIND:
        return "one namespace per project; the uid of kube-system is the cluster's identity"
    if kind in WORKLOAD_KINDS:
        return "workloads that were submitted"
    if kind in {KAI_TOPOLOGY, KUEUE_TOPOLOGY, VOLCANO_HYPER_NODE}:
        return "topology domains of each pool"
    return "queues and their quotas" if kind.key in PARENTS else "priorities and quotas of projects"


def manifests_for(
    flavour: str, *, beside: str = "", namespace: str = NAMESPACE, account: str = ACCOUNT
) -> list[Manifest]:
    """Namespace, ServiceAccount, ClusterRole and its binding, in the order in which they are applied."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": _labelled(namespace)},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**_labelled(account), "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": _labelled(ROLE),
            "rules": list(
                _rules(dict.fromkeys((*required_access(flavour, beside=beside), *_optional(flavour, beside))))
            ),
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _labelled(ROLE),
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def _optional(*flavours: str) -> Iterable[RequiredAccess]:
    return (access for name in flavours if name for access in optional_access(name))


def admission_policy_for(*, namespace: str = NAMESPACE, account: str = ACCOUNT) -> list[Manifest]:
    """A policy of the API server (1.30 or later) that keeps the account to namespaces and objects with our label.

    The rights hold in every namespace because Rung makes namespaces; with this, a stolen token reaches no other one.
    """
    by_rung = f"request.userInfo.username == 'system:serviceaccount:{namespace}:{account}'"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [EVERY_WRITE]},
        "matchConditions": [{"name": "by-rung", "expression": by_rung}, UNREVIEWABLE],
        "validations": [{"expression": f"{whose} == null || {whose}.{OURS}", "message": why} for whose, why in KEPT],
    }
    binding = {"policyName": GUARD, "validationActions": ["Deny"]}
    return [_policy("ValidatingAdmissionPolicy", policy), _policy("ValidatingAdmissionPolicyBinding", binding)]


def _policy(kind: str, spec: dict[str, Any]) -> Manifest:
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": _labelled(GUARD), "spec": spec}


def as_yaml(
    flavour: str, *, beside: str = "", namespace: str = NAMESPACE, account: str = ACCOUNT, guard: bool = False
) -> str:
    """The manifests as one YAML text, headed by how to apply them and how to get a token."""
    other = BESIDE.format(beside=beside) if beside else ""
    head = HEAD.format(flavour=flavour, beside=other, namespace=namespace, account=account)
    manifests = manifests_for(flavour, beside=beside, namespace=namespace, account=account)
    manifests += admission_policy_for(namespace=namespace, account=account) if guard else []
    return head + yaml.safe_dump_all(manifests, sort_keys=False, explicit_start=True)


def _labelled(name: str) -> dict[str, object]:
    """Part of Rung, but not managed by it: its own account is none of the objects that it may delete."""
    return {"name": name, "labels": {"app.kubernetes.io/part-of": MANAGER}}


def _rules(accesses: Iterable[RequiredAccess]) -> Iterable[dict[str, list[str]]]:
    """One rule per API group, set of verbs and named object."""
    grouped: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for access in accesses:
        grouped.setdefault((access.group, access.verbs, access.name), []).append(access.path)
    for (group, verbs, name), resources in grouped.items():
        only = {"resourceNames": [name]} if name else {}
        yield {"apiGroups": [group], "resources": resources, **only, "verbs": list(verbs)}
