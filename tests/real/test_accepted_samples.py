"""The second line: whatever intake accepts, a real API server accepts too, in a namespace under `restricted`."""

import copy
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusters.flavours.registry import flavour_for
from clusters.ports.flavour import JobSpec
from clusters.ports.gateway import ClusterError, Manifest, ObjectRef
from clusters.ports.objects import POD
from clusters.ports.pod_templates import TemplateShape, parts_in
from clusters.ports.workload_kinds import KINDS, kind_for
from tenants.organisation.models import Project
from tests.real.product import Product
from tests.workloads.intake.manifests import IMAGE, VALID, container
from workloads.intake import FormFields, IntakeRefused, ProjectGrants, WorkloadSpec, read_form, read_object
from workloads.intake.rules.forms import FRAMEWORKS
from workloads.submission.views import EXAMPLES, example_text

pytestmark = pytest.mark.lab
FORMS: dict[str, dict[str, Any]] = {
    "Workspace": {"port": 8888, "cpu": "2", "memory": "8Gi"},
    "Training": {"gpus": "1", "command": "python train.py", "checkpoint_interval": "10m"},
    "Inference": {"gpus": "1", "replicas": 2, "port": 8080, "environment": (("A", "1"), ("B", ""))},
    "NIMInference": {"gpus": "1", "image": "nvcr.io/nim/meta/llama:1.0", "secret": "ngc-api-key", "storage": "models"},
    "HuggingFaceInference": {"gpus": "1", "model": "meta-llama/Llama-3.1-8B-Instruct", "pull_secret": "ngc-registry"},
    "DistributedInference": {"gpus": "4", "workers": 2},
    **{f"Distributed {each}": {"gpus": "8", "workers": 2, "framework": each} for each in FRAMEWORKS},
}


def scope_of(project: Project) -> ProjectGrants:
    secrets = ("ngc-api-key", "ngc-registry")
    return ProjectGrants(namespace=project.namespace, allowed_registries=("*",), secrets=secrets)


def rendered(spec: WorkloadSpec, project: Project) -> Manifest:
    """As the product would hand it over, under a name nobody has."""
    identity = str(uuid.uuid4())
    job = JobSpec(
        id=identity,
        type_name=spec.type_name,
        name=f"sample-{identity[:8]}",
        namespace=project.namespace,
        manifest=spec.manifest,
        priority_class="low",
        priority_value=40,
        preemptibility="preemptible",
        queue="",
        pool=None,
        min_member=spec.min_member,
        generation=1,
    )
    (manifest,) = flavour_for("kube").render(job)
    return manifest


def pods_of(manifest: Manifest) -> Iterator[Manifest]:
    """Each template as the pod a controller would make of it: only pods are held to `restricted`."""
    kind = kind_for(manifest["apiVersion"], manifest["kind"])
    assert kind is not None
    for number, found in enumerate(parts_in(manifest, kind)):
        if found.shape is TemplateShape.TEMPLATE and found.pointer:
            body: Any = copy.deepcopy(found.part)
            metadata = {**body.get("metadata", {}), "namespace": manifest["metadata"]["namespace"]}
            metadata["name"] = f"{manifest['metadata']['name']}-{number}"
            spec = {name: value for name, value in body["spec"].items() if name not in OF_KNATIVE}
            claims = [each["metadata"]["name"] for each in manifest["spec"].get("volumeClaimTemplates", [])]
            spec["volumes"] = spec.get("volumes", []) + [{"name": each, "emptyDir": {}} for each in claims]
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


OF_KNATIVE = ("containerConcurrency", "timeoutSeconds")


def refusals(product: Product, spec: WorkloadSpec, project: Project) -> list[str]:
    """What the API server says against the object and the pods of it."""
    manifest = rendered(spec, project)
    said = []
    for each in (*pods_of(manifest), manifest):
        try:
            product.gateway.create(each)
        except ClusterError as error:
            said.append(f"{error.code}: {error.message}")
        else:
            kind = kind_for(each["apiVersion"], each["kind"])
            if kind is not None and each["kind"] == "Pod":
                product.admin.delete(ObjectRef(POD, each["metadata"]["name"], project.namespace), grace=0)
    return said


@pytest.fixture
def project(product: Product) -> Project:
    """A project whose namespace is there."""
    project = product.project("samples", deserved=64)
    product.reconcile()
    return project


def test_every_kind_is_taken(product: Product, project: Project) -> None:
    said = {
        kind.name: refusals(product, read_object(VALID[kind.name](), scope=scope_of(project)), project)
        for kind in KINDS
    }
    assert {name: each for name, each in said.items() if each} == {}


def test_every_shipped_example_is_taken(product: Product, project: Project) -> None:
    said = {
        name: refusals(product, read_object(yaml.safe_load(example_text(name)), scope=scope_of(project)), project)
        for name in EXAMPLES
    }
    assert {name: each for name, each in said.items() if each} == {}


def test_every_form_is_taken(product: Product, project: Project) -> None:
    said = {}
    for name, fields in FORMS.items():
        given_fields = {"type": name.split()[0], "name": "theirs", "image": IMAGE, **fields}
        said[name] = refusals(product, read_form(FormFields(**given_fields), scope=scope_of(project)), project)
    assert {name: each for name, each in said.items() if each} == {}


def some(**choices: Any) -> st.SearchStrategy[dict[str, Any]]:
    """An object with any of the fields."""
    return st.fixed_dictionaries({}, optional=choices)


SECONDS = st.integers(0, 60)
HANDLER = st.sampled_from(
    [
        {"exec": {"command": ["true"]}},
        {"httpGet": {"port": 8080, "path": "/healthz", "scheme": "HTTPS"}},
        {"tcpSocket": {"port": 8080}},
    ]
)
PROBE = st.builds(
    lambda handler, times: {**handler, **times},
    HANDLER | st.just({"grpc": {"port": 9000, "service": "x"}}),
    some(initialDelaySeconds=SECONDS, failureThreshold=st.integers(1, 9), successThreshold=st.integers(1, 3))
    | some(terminationGracePeriodSeconds=st.integers(1, 60), timeoutSeconds=st.integers(1, 9)),
)
HOOK = HANDLER | st.just({"sleep": {"seconds": 3}}) | st.just({"sleep": {"seconds": 0}})
CONTEXT = some(
    runAsUser=st.sampled_from([1, 1000]),
    runAsGroup=st.just(1000),
    runAsNonRoot=st.just(value=True),
    readOnlyRootFilesystem=st.booleans(),
    allowPrivilegeEscalation=st.just(value=False),
    privileged=st.just(value=False),
    procMount=st.just("Default"),
    seccompProfile=st.just({"type": "RuntimeDefault"}),
    capabilities=st.sampled_from([{}, {"drop": []}, {"drop": ["NET_RAW"]}, {"drop": ["ALL"]}, {"add": []}]),
)
VOLUMES: list[dict[str, Any]] = [
    {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1.5Gi"}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "about", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.name"}}]}},
]
RESOURCES: list[dict[str, Any]] = [
    {},
    {"limits": {"nvidia.com/gpu": 1}},
    {"limits": {"nvidia.com/gpu": "2", "cpu": "0.5", "memory": "1.5Gi"}, "requests": {"cpu": "100m"}},
    {"requests": {"cpu": 1.5, "memory": "1e9", "ephemeral-storage": "1Gi"}},
    {"limits": {"nvidia.com/gpu": 0}},
]
CONTAINER = st.builds(
    lambda fields: container(**fields),
    some(
        resources=st.sampled_from(RESOURCES),
        securityContext=CONTEXT,
        livenessProbe=PROBE,
        readinessProbe=PROBE,
        startupProbe=PROBE,
        lifecycle=some(preStop=HOOK, postStart=HOOK),
        env=st.sampled_from([[], [{"name": "A", "value": ""}, {"name": "B.c-d", "value": "$(A)"}]]),
        ports=st.sampled_from([[], [{"containerPort": 80, "name": "http", "protocol": "TCP"}]]),
        volumeMounts=st.sampled_from([[], [{"name": "scratch", "mountPath": "/dev/shm"}]]),
        terminationMessagePolicy=st.just("FallbackToLogsOnError"),
        terminationMessagePath=st.just("/tmp/message"),
        workingDir=st.just("/work"),
        stdin=st.booleans(),
        stdinOnce=st.booleans(),
        tty=st.booleans(),
        imagePullPolicy=st.sampled_from(["Always", "Never"]),
    ),
)
EARLY = st.builds(
    lambda body, more: {**body, "name": "early", **more}, CONTAINER, some(restartPolicy=st.just("Always"))
)
SPEC = st.builds(
    lambda main, fields: {"containers": [main], "volumes": VOLUMES, **fields},
    CONTAINER,
    some(
        initContainers=st.lists(EARLY, max_size=1),
        securityContext=some(
            runAsUser=st.just(1000),
            fsGroup=st.just(2000),
            fsGroupChangePolicy=st.just("OnRootMismatch"),
            supplementalGroups=st.just([3000]),
            supplementalGroupsPolicy=st.just("Strict"),
            sysctls=st.just([{"name": "net.ipv4.tcp_keepalive_time", "value": "60"}]),
        ),
        restartPolicy=st.sampled_from(["Always", "OnFailure", "Never"]),
        terminationGracePeriodSeconds=st.integers(0, 3600),
        activeDeadlineSeconds=st.integers(1, 100),
        hostname=st.just("trainer"),
        subdomain=st.just("train"),
        setHostnameAsFQDN=st.booleans(),
        enableServiceLinks=st.booleans(),
        hostUsers=st.just(value=False),
        hostNetwork=st.just(value=False),
        dnsPolicy=st.just("ClusterFirst"),
        serviceAccountName=st.just("default"),
        serviceAccount=st.just("default"),
        automountServiceAccountToken=st.just(value=False),
        nodeSelector=st.just({"nvidia.com/gpu.product": "H100"}),
        tolerations=st.sampled_from(
            [
                [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "yes", "tolerationSeconds": 3}],
                [{"key": "nvidia.com/gpu", "operator": "Exists", "value": "yes"}],
            ]
        ),
        topologySpreadConstraints=st.just(
            [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]
        ),
    ),
)


def test_any_accepted_pod_is_taken(product: Product, project: Project) -> None:
    scope, taken = scope_of(project), list[dict[str, Any]]()

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(SPEC)
    def hold(spec: dict[str, Any]) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sample"}, "spec": copy.deepcopy(spec)}
        try:
            read = read_object(body, scope=scope)
        except IntakeRefused:
            return
        taken.append(spec)
        assert refusals(product, read, project) == []

    hold()
    assert len(taken) > 50, "intake refused nearly every pod, so this proves nothing"


COUNT = st.integers(0, 3)
SHARE = st.sampled_from([0, 1, "0%", "25%", "100%"])
JOB = some(
    parallelism=COUNT,
    completions=st.integers(1, 3),
    completionMode=st.sampled_from(["NonIndexed", "Indexed"]),
    backoffLimit=COUNT,
    backoffLimitPerIndex=COUNT,
    maxFailedIndexes=COUNT,
    activeDeadlineSeconds=st.integers(1, 60),
    ttlSecondsAfterFinished=COUNT,
    podReplacementPolicy=st.sampled_from(["TerminatingOrFailed", "Failed"]),
)
CRON = some(
    schedule=st.sampled_from(
        ["0 3 * * *", "*/5 * * * *", "@daily", "0 3 * * MON-FRI", "* *", "61 * * * *", "every day"]
    ),
    timeZone=st.sampled_from(["Europe/Paris", "Etc/UTC", "UTC", "Nowhere/City", "Local", "europe/paris"]),
    concurrencyPolicy=st.sampled_from(["Allow", "Forbid", "Replace"]),
    startingDeadlineSeconds=COUNT,
    successfulJobsHistoryLimit=COUNT,
    failedJobsHistoryLimit=COUNT,
)
STRATEGY = st.builds(
    lambda kind, fields: {**kind, **fields},
    some(type=st.sampled_from(["Recreate", "RollingUpdate"])),
    some(rollingUpdate=some(maxSurge=SHARE, maxUnavailable=SHARE)),
)
SERVED = some(
    replicas=COUNT,
    minReadySeconds=st.sampled_from([0, 10, 700]),
    strategy=STRATEGY,
    revisionHistoryLimit=COUNT,
    progressDeadlineSeconds=st.sampled_from([1, 10, 600, 601]),
)
SET = some(
    replicas=COUNT,
    minReadySeconds=COUNT,
    serviceName=st.just("serve"),
    podManagementPolicy=st.sampled_from(["OrderedReady", "Parallel"]),
    updateStrategy=some(type=st.sampled_from(["RollingUpdate", "OnDelete"])),
    volumeClaimTemplates=st.just(
        [
            {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1.5Gi"}}},
            }
        ]
    ),
)


def once() -> dict[str, Any]:
    """A pod template that ends."""
    return {"spec": {"restartPolicy": "Never", "containers": [container()]}}


def selected(fields: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": "sample"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container()]}}
    return {"selector": {"matchLabels": labels}, "template": template, **fields}


OWNERS = st.one_of(
    st.tuples(st.just("batch/v1"), st.just("Job"), JOB.map(lambda fields: {"template": once(), **fields})),
    st.tuples(
        st.just("batch/v1"),
        st.just("CronJob"),
        st.builds(
            lambda cron, job: {"schedule": "0 3 * * *", **cron, "jobTemplate": {"spec": {"template": once(), **job}}},
            CRON,
            JOB,
        ),
    ),
    st.tuples(st.just("apps/v1"), st.just("Deployment"), SERVED.map(selected)),
    st.tuples(st.just("apps/v1"), st.just("StatefulSet"), SET.map(selected)),
)


def test_any_accepted_owner_of_pods_is_taken(product: Product, project: Project) -> None:
    scope, taken = scope_of(project), list[str]()

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(OWNERS)
    def hold(owner: tuple[str, str, dict[str, Any]]) -> None:
        api_version, kind, spec = owner
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "sample"}, "spec": copy.deepcopy(spec)}
        try:
            read = read_object(body, scope=scope)
        except IntakeRefused:
            return
        taken.append(kind)
        assert refusals(product, read, project) == []

    hold()
    assert set(taken) == {"Job", "CronJob", "Deployment", "StatefulSet"}
