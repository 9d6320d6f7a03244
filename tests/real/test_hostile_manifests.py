"""T1-T24 on a real API server: the portal refuses each of them at its pointer, and nothing of it gets there."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from clusters.ports.gateway import Manifest
from clusters.ports.objects import NAMESPACE, PRIORITY_CLASS, WORKLOAD_KINDS
from tenants.access.models import Role, User
from tests.factories.tenants import MembershipFactory, UserFactory
from tests.real.product import Product
from tests.workloads.intake.manifests import VALID, pod, pod_with
from tests.workloads.intake.pod_places import at
from tests.workloads.intake.refusals import REFUSED_CONTAINERS, REFUSED_PODS
from tests.workloads.intake.test_pod_escape import WAYS_ROUND
from workloads.lifecycle.services.apply_queue import drain
from workloads.state.models import Workload

pytestmark = pytest.mark.lab
TEXT = "/workloads/submit/yaml/"
FOREIGN = [("scheduling.k8s.io/v1", "PriorityClass"), ("rbac.authorization.k8s.io/v1", "ClusterRole")]
FOREIGN += [("v1", "Namespace"), ("v1", "Secret"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")]


def named(**metadata: Any) -> Manifest:
    body = VALID["Job"]()
    body["metadata"].update(metadata)
    return body


def of_scope() -> Iterator[tuple[str, Manifest]]:
    """T1-T9."""
    for namespace in ("kube-system", "../default", "default"):
        yield f"T1 {namespace}", named(namespace=namespace)
    for api_version, kind in FOREIGN:
        yield f"T2 {kind}", {"apiVersion": api_version, "kind": kind, "metadata": {"name": "hostile"}, "value": 1}
    yield "T3 list", {"apiVersion": "v1", "kind": "List", "items": [VALID["Pod"]()]}
    yield "T4 version", {**VALID["Job"](), "apiVersion": "batch/v1beta9"}
    yield "T5 name", named(name="-x")
    yield "T6 owner", named(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}])
    yield "T7 finalizer", named(finalizers=["rung.dev/stay"])
    yield "T8 uid", named(uid="1")
    yield "T9 queue", named(labels={"kai.scheduler/queue": "project.2.lab"})


def of_pods() -> Iterator[tuple[str, Manifest]]:
    """T10-T24, bare and at the nested template of a Job and a PyTorchJob."""
    places = {"Pod": "", "Job": "/spec/template", "PyTorchJob": "/spec/pytorchReplicaSpecs/Worker/template"}
    for kind, place in places.items():
        for name, (change, _) in REFUSED_PODS.items():
            body = VALID[kind]()
            at(body, place)["spec"].update(change)
            yield f"{name} in a {kind}", body
        for name, (change, _) in REFUSED_CONTAINERS.items():
            body = VALID[kind]()
            at(body, place)["spec"]["containers"][0].update(change)
            yield f"{name} in a {kind}", body
    for name, (kind, change_spec, _) in WAYS_ROUND.items():
        body = VALID[kind]()
        change_spec(body["spec"])
        yield f"T18 {name}", body
    for amount in ("0.5", -1, "1e9", "9999999999999999999", "0x8", "1Gi"):
        yield f"T21 {amount}", pod_with(resources={"limits": {"nvidia.com/gpu": amount}})
    mount = {"name": "v", "mountPath": "/data", "subPath": "../etc"}
    main = {**VALID["Pod"]()["spec"]["containers"][0], "volumeMounts": [mount]}
    yield "T23 sub-path", pod(volumes=[{"name": "v", "emptyDir": {}}], containers=[main])


@pytest.fixture
def member(product: Product, client_of: Callable[[User], Client], settings: Settings) -> Client:
    """A member of a project on the real cluster, in the browser."""
    settings.RUNG_IMAGE_REGISTRIES = [*settings.RUNG_IMAGE_REGISTRIES, "docker.io", "nvcr.io"]
    user = UserFactory()
    MembershipFactory(user=user, project=product.project("vision"), role=Role.MEMBER)
    product.reconcile()
    return client_of(user)


def everything(product: Product) -> set[tuple[str, str, str]]:
    """Every object a tenant might have brought into the cluster."""
    kinds = (*WORKLOAD_KINDS, NAMESPACE, PRIORITY_CLASS)
    found = ((kind.key, each["metadata"]) for kind in kinds for each in product.admin.list(kind))
    return {(key, meta.get("namespace", ""), meta["name"]) for key, meta in found}


@pytest.mark.parametrize("cases", [of_scope, of_pods], ids=["T1-T9", "T10-T24"])
def test_nothing_hostile_reaches_the_api_server(
    product: Product, member: Client, cases: Callable[[], Iterator[tuple[str, Manifest]]]
) -> None:
    before = everything(product)
    project = f"vision-{product.mark}"
    answers = {
        name: member.post(TEXT, {"project": project, "text": json.dumps(body)}).status_code for name, body in cases()
    }
    assert {name: status for name, status in answers.items() if status != 422} == {}
    drain()
    assert not Workload.objects.exists()
    assert everything(product) - before == set()


def test_the_same_door_takes_what_is_harmless(product: Product, member: Client) -> None:
    answer = member.post(TEXT, {"project": f"vision-{product.mark}", "text": json.dumps(VALID["Job"]())})
    assert answer.status_code == 302
    workload = Workload.objects.get()
    product.apply(workload)
    assert product.object_of(workload) is not None
