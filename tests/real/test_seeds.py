"""The seeds' manifests through the whole product to a real cluster: pods, phases, events and logs on the page."""

from collections.abc import Callable

import pytest
from django.test import Client

from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import EVENT, kind_of
from clusters.ports.workload_kinds import kind_named
from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tests.clusters.specs import templates_in
from tests.factories.tenants import MembershipFactory, UserFactory
from tests.factories.workloads import deployment, job
from tests.real.product import Product, fresh
from workloads.state.models import Phase, Workload
from workloads.state.selectors.workloads import object_name
from workloads.submission.views import example_text

pytestmark = pytest.mark.lab
TEXT = "/workloads/submit/yaml/"


@pytest.fixture
def project(product: Product) -> Project:
    """Eight GPUs deserved on the real cluster."""
    project = product.project("llm-team", deserved=16)
    product.reconcile()
    return project


@pytest.fixture
def alice(product: Product, project: Project, client_of: Callable[[User], Client]) -> Client:
    """A member of the project, in the browser."""
    user = UserFactory(username="alice")
    MembershipFactory(user=user, project=project, role=Role.MEMBER)
    return client_of(user)


def submitted(product: Product, alice: Client, project: Project, name: str) -> Workload:
    """A shipped example, sent as it is."""
    answer = alice.post(TEXT, {"project": project.name, "text": example_text(name)})
    assert answer.status_code == 302, answer.content.decode()
    workload = Workload.objects.get(name=name)
    product.apply(workload)
    assert fresh(workload).apply_error == ""
    return workload


def page(alice: Client, workload: Workload, tab: str, **query: str) -> str:
    answer = alice.get(f"/workloads/{workload.pk}/", {"tab": tab, **query})
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def operate(product: Product, workload: Workload) -> list[Manifest]:
    """What the training operator does: a pod per replica, owned by the job."""
    owner = product.object_of(workload)
    assert owner is not None
    kind = workload.type.name
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    reference |= {"uid": owner["metadata"]["uid"], "controller": True}
    pods = []
    for found in templates_in(owner, kind_named(kind)):
        for number in range(found.replicas):
            template = found.template
            metadata = {**template["metadata"], "namespace": workload.project.namespace, "ownerReferences": [reference]}
            metadata["name"] = f"{owner['metadata']['name']}-{found.role.lower()}-{number}"
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return [product.admin.create(pod) for pod in pods]


def told(product: Product, workload: Workload, kind: str, **condition: str) -> None:
    """What the operator says of the job."""
    ref = ObjectRef(kind_of(workload.spec["manifest"]), object_name(workload), workload.project.namespace)
    product.admin.patch_status(ref, {"conditions": [{"type": kind, "status": "True", **condition}]})


def reports(product: Product, alice: Client, workload: Workload, *texts: str) -> None:
    """The page tells these events. Kubernetes writes them beside the work, so one may come after the pod runs."""
    product.until(workload, lambda row: all(text in page(alice, row, "events") for text in texts))


def test_llm_finetune_runs_on_eight_gpus_and_completes(product: Product, alice: Client, project: Project) -> None:
    workload = submitted(product, alice, project, "llm-finetune")
    assert (workload.priority.name, workload.preemptibility) == ("low", "preemptible")
    operate(product, workload)
    told(product, workload, "Running", reason="PyTorchJobRunning")
    running = product.until(workload, lambda row: row.phase == Phase.RUNNING)
    assert (running.allocated_gpu_milli, running.running_pods) == (8000, 2)
    pods = page(alice, workload, "pods")
    assert f"{object_name(workload)}-worker-0" in pods
    assert "low 40" in pods
    reports(product, alice, workload, "Successfully assigned")
    told(product, workload, "Succeeded", reason="PyTorchJobSucceeded")
    product.until(workload, lambda row: row.phase == Phase.COMPLETED)


def test_the_notebook_of_the_recipe_runs_and_shows_its_logs_fit_to_be_read(
    product: Product, alice: Client, project: Project
) -> None:
    workload = submitted(product, alice, project, "jupyter-notebook")
    product.until(workload, lambda row: row.phase == Phase.RUNNING)
    logs = page(alice, workload, "logs")
    assert "epoch 1 loss 0.731" in logs
    assert "checkpoint written" in logs
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in logs
    assert "\x1b" not in logs
    assert "a title that is not yours" not in logs
    assert "progress 100%" in logs
    assert "progress 10%" not in logs
    assert "Complete log." in logs
    reports(product, alice, workload, "Successfully assigned", "Created pod")
    applied = page(alice, workload, "yaml")
    assert "runAsNonRoot: true" in applied
    assert "drop: - ALL" in applied


def test_training_job_1_is_evicted_by_inference_and_the_record_stays(
    product: Product, alice: Client, project: Project
) -> None:
    """Seed 001, as it is in truth: SIGTERM and the whole grace period, and a record when pod and events are gone."""
    workload = submitted(product, alice, project, "training-job-1")
    product.until(workload, lambda row: row.phase == Phase.RUNNING)
    logs = page(alice, workload, "logs")
    assert "checkpoint written" in logs
    crowd(product, project)
    inference = inference_for(product, project)
    product.until(inference, lambda row: row.phase == Phase.RUNNING)
    record = product.until(workload, lambda row: row.preemptions.filter(gone_at__isnull=False).exists())
    (one,) = record.preemptions.all()
    assert (one.preemptor, one.preemptor_priority, one.cause) == (inference, "very-high", "preempt")
    assert one.node_name.startswith("lab-")
    assert one.grace_seconds == 30
    assert one.grace_used_seconds is not None
    assert one.grace_used_seconds >= 29
    assert one.gpu_milli == 4000
    assert one.lost_gpu_seconds >= 4 * one.ran_seconds
    for event in product.admin.list(EVENT, namespace=project.namespace):
        product.admin.delete(ObjectRef(EVENT, event["metadata"]["name"], project.namespace))
    product.look()
    assert list(fresh(workload).preemptions.all()) == [one]
    story = page(alice, workload, "overview")
    assert "Evicted" in story
    assert inference.name in story


def crowd(product: Product, project: Project) -> None:
    """The other 28 GPUs are in use by work that is worth more."""
    requested = {"priority": "medium", "preemptibility": "preemptible"}
    for number, gpus in enumerate((8, 8, 8, 4)):
        each = product.submit(project, job(f"crowd-{number}", gpus=gpus), **requested)
        product.until(each, lambda row: row.phase == Phase.RUNNING)


def inference_for(product: Product, project: Project) -> Workload:
    requested = {"priority": "very-high", "preemptibility": "non-preemptible"}
    return product.submit(project, deployment("inference", gpus=4), **requested)
