"""Every kind of manifest a tenant may submit, as one table: who serves it and where its pods are described.

Pure data and lookups, standard library only. Intake, flavours, sandbox and status all read this table, so a kind is
added in one place. Sources: Run:ai's list of workload types; the public API groups; the owners KAI's pod grouper knows.
AMLJob and SPOTRequest have no public schema: this is a small guess around the part that KAI reads, no more.
"""

from clusters.ports.pod_templates import OnChange, TemplatePath, TemplateShape, WorkloadKind

PARALLEL = ("../parallelism",)
REPLICAS = ("../replicas",)


def _kubeflow(name: str, replica_specs: str, *, versions: tuple[str, ...] = ("v1",)) -> WorkloadKind:
    paths = (TemplatePath(f"/spec/{replica_specs}/*/template", REPLICAS),)
    return WorkloadKind(
        name,
        "kubeflow.org",
        versions,
        name,
        f"{name.lower()}s",
        paths,
        suspend="/spec/runPolicy/suspend",
        gang=True,
        priority=("/spec/runPolicy/schedulingPolicy/priorityClass",),
        minimum="/spec/runPolicy/schedulingPolicy/minAvailable",
    )


def _apps(name: str, plural: str, on_change: OnChange = OnChange.RESTART) -> WorkloadKind:
    paths = (TemplatePath("/spec/template", REPLICAS, "replica"),)
    return WorkloadKind(name, "apps", ("v1",), name, plural, paths, on_change=on_change)


def _ray_paths(cluster: str) -> tuple[TemplatePath, ...]:
    return (
        TemplatePath(f"{cluster}/headGroupSpec/template", role="head"),
        TemplatePath(f"{cluster}/workerGroupSpecs/*/template", ("../replicas", "../numOfHosts")),
    )


def _ray(
    name: str,
    paths: tuple[TemplatePath, ...],
    suspend: str | None = "/spec/suspend",
    on_change: OnChange = OnChange.RESTART,
) -> WorkloadKind:
    return WorkloadKind(
        name,
        "ray.io",
        ("v1", "v1alpha1"),
        name,
        f"{name.lower()}s",
        paths,
        suspend=suspend,
        gang=True,
        priority=("/metadata/labels/ray.io~1priority-class-name",),
        later=("submitter",),
        on_change=on_change,
    )


NATIVE = (
    WorkloadKind("Pod", "", ("v1",), "Pod", "pods", (TemplatePath("", role="pod"),)),
    WorkloadKind(
        "Job",
        "batch",
        ("v1",),
        "Job",
        "jobs",
        (TemplatePath("/spec/template", PARALLEL, "job"),),
        "/spec/suspend",
        gang=True,
    ),
    WorkloadKind(
        "CronJob",
        "batch",
        ("v1",),
        "CronJob",
        "cronjobs",
        (TemplatePath("/spec/jobTemplate/spec/template", PARALLEL, "job"),),
        on_change=OnChange.NEXT_RUN,  # and none to suspend: that would let the run under way go on
    ),
    _apps("Deployment", "deployments"),
    _apps("ReplicaSet", "replicasets", OnChange.NEW_PODS),
    _apps("StatefulSet", "statefulsets"),
)

TRAINING = (
    _kubeflow("PyTorchJob", "pytorchReplicaSpecs"),
    _kubeflow("TFJob", "tfReplicaSpecs"),
    _kubeflow("MPIJob", "mpiReplicaSpecs", versions=("v2beta1", "v1")),
    _kubeflow("XGBoostJob", "xgbReplicaSpecs"),
    _kubeflow("JAXJob", "jaxReplicaSpecs"),
    WorkloadKind(
        "JobSet",
        "jobset.x-k8s.io",
        ("v1alpha2",),
        "JobSet",
        "jobsets",
        (TemplatePath("/spec/replicatedJobs/*/template/spec/template", ("../parallelism", "../../../replicas")),),
        "/spec/suspend",
        gang=True,
    ),
    _ray("RayCluster", _ray_paths("/spec")),
    _ray(
        "RayJob",
        (*_ray_paths("/spec/rayClusterSpec"), TemplatePath("/spec/submitterPodTemplate", role="submitter")),
        on_change=OnChange.RECREATE,
    ),
    _ray("RayService", _ray_paths("/spec/rayClusterConfig"), None),
    WorkloadKind(
        "AMLJob",
        "amlarc.azureml.com",
        ("v1alpha1",),
        "AmlJob",
        "amljobs",
        (TemplatePath("/spec/job/options", ("envs/AZUREML_NODE_COUNT",), "node", TemplateShape.CONTAINER),),
        gang=True,
    ),
    WorkloadKind(
        "VirtualMachineInstance",
        "kubevirt.io",
        ("v1",),
        "VirtualMachineInstance",
        "virtualmachineinstances",
        (TemplatePath("/spec", role="machine", shape=TemplateShape.MACHINE),),
    ),
    WorkloadKind(
        "SPOTRequest",
        "egx.nvidia.io",
        ("v1",),
        "SPOTRequest",
        "spotrequests",
        (TemplatePath("/spec", ("replicas",), "spot", TemplateShape.CONTAINER),),
    ),
)

BUILD = (
    WorkloadKind(
        "Notebook",
        "kubeflow.org",
        ("v1", "v1beta1"),
        "Notebook",
        "notebooks",
        (TemplatePath("/spec/template", role="notebook"),),
        on_change=OnChange.RESTART,
    ),
    WorkloadKind(
        "DevWorkspace",
        "workspace.devfile.io",
        ("v1alpha2",),
        "DevWorkspace",
        "devworkspaces",
        (TemplatePath("/spec/template", role="workspace", shape=TemplateShape.DEVFILE),),
        on_change=OnChange.RESTART,
    ),
    WorkloadKind(
        "TaskRun",
        "tekton.dev",
        ("v1",),
        "TaskRun",
        "taskruns",
        (TemplatePath("/spec/taskSpec", role="task", shape=TemplateShape.STEPS),),
        priority=("/spec/podTemplate/priorityClassName",),
    ),
    WorkloadKind(
        "PipelineRun",
        "tekton.dev",
        ("v1",),
        "PipelineRun",
        "pipelineruns",
        (
            TemplatePath("/spec/pipelineSpec/tasks/*/taskSpec", shape=TemplateShape.STEPS),
            TemplatePath("/spec/pipelineSpec/finally/*/taskSpec", shape=TemplateShape.STEPS),
        ),
    ),
    WorkloadKind(
        "Workflow",
        "argoproj.io",
        ("v1alpha1",),
        "Workflow",
        "workflows",
        (TemplatePath("/spec/templates/*", shape=TemplateShape.STEP),),
        "/spec/suspend",
    ),
    WorkloadKind(
        "ScheduledWorkflow",
        "kubeflow.org",
        ("v1beta1", "v1alpha1"),
        "ScheduledWorkflow",
        "scheduledworkflows",
        (TemplatePath("/spec/workflow/spec/templates/*", shape=TemplateShape.STEP),),
        on_change=OnChange.NEXT_RUN,
    ),
)

SERVING = (
    WorkloadKind(
        "Service",
        "serving.knative.dev",
        ("v1",),
        "Service",
        "services",
        (TemplatePath("/spec/template", ("metadata/annotations/autoscaling.knative.dev~1max-scale",), "revision"),),
        on_change=OnChange.RESTART,
    ),
    WorkloadKind(
        "InferenceService",
        "serving.kserve.io",
        ("v1beta1",),
        "InferenceService",
        "inferenceservices",
        (
            TemplatePath("/spec/predictor", ("maxReplicas",), "predictor", TemplateShape.POD),
            TemplatePath("/spec/transformer", ("maxReplicas",), "transformer", TemplateShape.POD),
        ),
        priority=("/spec/predictor/priorityClassName", "/spec/transformer/priorityClassName"),
        on_change=OnChange.RESTART,
    ),
    WorkloadKind(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        ("v1",),
        "LeaderWorkerSet",
        "leaderworkersets",
        (
            TemplatePath("/spec/leaderWorkerTemplate/leaderTemplate", ("../../replicas",), "leader"),
            TemplatePath(
                "/spec/leaderWorkerTemplate/workerTemplate",
                ("../../replicas", "../size"),
                "worker",
                less_with="../leaderTemplate",
            ),
        ),
        gang=True,
        minimum="/spec/leaderWorkerTemplate/size",
        on_change=OnChange.RESTART,
    ),
    WorkloadKind(
        "SeldonDeployment",
        "machinelearning.seldon.io",
        ("v1", "v1alpha2"),
        "SeldonDeployment",
        "seldondeployments",
        (TemplatePath("/spec/predictors/*/componentSpecs/*", ("../../replicas",)),),
        on_change=OnChange.RESTART,
    ),
    WorkloadKind(
        "NIMServices",
        "apps.nvidia.com",
        ("v1alpha1",),
        "NIMService",
        "nimservices",
        (TemplatePath("/spec", ("replicas",), "nim", TemplateShape.CONTAINER),),
        on_change=OnChange.RESTART,
    ),
    WorkloadKind(
        "NIMCache",
        "apps.nvidia.com",
        ("v1alpha1",),
        "NIMCache",
        "nimcaches",
        (TemplatePath("/spec", role="cache", shape=TemplateShape.CONTAINER),),
    ),
    WorkloadKind(
        "DynamoGraphDeployment",
        "nvidia.com",
        ("v1alpha1",),
        "DynamoGraphDeployment",
        "dynamographdeployments",
        (TemplatePath("/spec/services/*", ("replicas", "multinode/nodeCount"), shape=TemplateShape.CONTAINER),),
        gang=True,
        on_change=OnChange.RESTART,
    ),
)

KINDS: tuple[WorkloadKind, ...] = NATIVE + TRAINING + BUILD + SERVING
_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_VERSION = {(version, kind.kind): kind for kind in KINDS for version in kind.api_versions}


def kind_named(name: str) -> WorkloadKind:
    """The kind of Run:ai's type name; KeyError when there is none."""
    return _BY_NAME[name]


def kind_for(api_version: str, kind: str) -> WorkloadKind | None:
    """The kind a manifest names, compared exactly; None when it is not one a tenant may submit."""
    return _BY_VERSION.get((api_version, kind))
