"""The built-in dictionary: Run:ai's seven priorities, three categories and every workload type that Run:ai lists."""

from typing import Any, Final

from django.apps.registry import Apps

PRIORITIES: Final = [
    ("very-low", 25, "Uses leftover GPUs; evicted first."),
    ("low", 40, "Default for training."),
    ("medium-low", 65, "Slightly higher than regular training."),
    ("medium", 80, "Higher than training; preemptible unless set otherwise."),
    ("medium-high", 90, "Highest priority that is preemptible unless set otherwise."),
    ("high", 125, "Default for interactive workloads; non-preemptible unless set otherwise."),
    ("very-high", 150, "Default for inference; non-preemptible unless set otherwise."),
]

CATEGORIES: Final = [
    ("Build", "Interactive workloads: notebooks, development environments, plain Jobs.", "high", "non-preemptible"),
    ("Train", "Training, single or distributed.", "low", "preemptible"),
    ("Deploy", "Inference and other services.", "very-high", "non-preemptible"),
]

NATIVE: Final = [
    ("Workspace", "Workspace", "Build"),
    ("Training", "Standard training", "Train"),
    ("Distributed", "Distributed training", "Train"),
    ("Inference", "Custom inference", "Deploy"),
    ("DistributedInference", "Distributed inference", "Deploy"),
    ("NIMInference", "NVIDIA NIM inference", "Deploy"),
    ("HuggingFaceInference", "Hugging Face inference", "Deploy"),
]

KINDS: Final = [
    ("DevWorkspace", "Dev workspace", "workspace.devfile.io", "Build"),
    ("Job", "Kubernetes Job", "batch", "Build"),
    ("Notebook", "Kubeflow notebook", "kubeflow.org", "Build"),
    ("TaskRun", "Tekton task run", "tekton.dev", "Build"),
    ("AMLJob", "Azure ML job", "amlarc.azureml.com", "Train"),
    ("JAXJob", "JAX training", "kubeflow.org", "Train"),
    ("JobSet", "Job set", "jobset.x-k8s.io", "Train"),
    ("MPIJob", "MPI training", "kubeflow.org", "Train"),
    ("PyTorchJob", "PyTorch training", "kubeflow.org", "Train"),
    ("RayCluster", "Ray cluster", "ray.io", "Train"),
    ("RayJob", "Ray job", "ray.io", "Train"),
    ("TFJob", "TensorFlow training", "kubeflow.org", "Train"),
    ("VirtualMachineInstance", "Virtual machine", "kubevirt.io", "Train"),
    ("XGBoostJob", "XGBoost training", "kubeflow.org", "Train"),
    ("CronJob", "Kubernetes CronJob", "batch", "Deploy"),
    ("Deployment", "Kubernetes Deployment", "apps", "Deploy"),
    ("DynamoGraphDeployment", "Dynamo graph", "nvidia.com", "Deploy"),
    ("InferenceService", "KServe inference", "serving.kserve.io", "Deploy"),
    ("LeaderWorkerSet", "Leader-worker set", "leaderworkerset.x-k8s.io", "Deploy"),
    ("NIMCache", "NIM cache", "apps.nvidia.com", "Deploy"),
    ("NIMServices", "NIM service", "apps.nvidia.com", "Deploy"),
    ("PipelineRun", "Tekton pipeline run", "tekton.dev", "Deploy"),
    ("Pod", "Kubernetes Pod", "core", "Deploy"),
    ("RayService", "Ray service", "ray.io", "Deploy"),
    ("ReplicaSet", "Kubernetes ReplicaSet", "apps", "Deploy"),
    ("ScheduledWorkflow", "Scheduled Kubeflow workflow", "kubeflow.org", "Deploy"),
    ("SeldonDeployment", "Seldon deployment", "machinelearning.seldon.io", "Deploy"),
    ("Service", "Knative service", "serving.knative.dev", "Deploy"),
    ("StatefulSet", "Kubernetes StatefulSet", "apps", "Deploy"),
    ("Workflow", "Argo workflow", "argoproj.io", "Deploy"),
]


def install_dictionary(*, apps: Apps, using: str, **_signal: Any) -> None:
    """Fill an empty dictionary after `migrate`. What admins changed or removed since stays as it is.

    `apps` are the models as migrated; a database without them (migrated to an earlier state) is left alone.
    """
    try:
        models = {name: apps.get_model("workloads", name) for name in ("Priority", "Category", "WorkloadType")}
    except LookupError:
        return
    rows = {name: model._default_manager.using(using) for name, model in models.items()}
    if any(manager.exists() for manager in rows.values()):
        return
    priorities = {
        name: rows["Priority"].create(name=name, value=value, description=description, source="Run:ai")
        for name, value, description in PRIORITIES
    }
    categories = {
        name: rows["Category"].create(
            name=name, description=description, priority=priorities[priority], preemptibility=preemptibility
        )
        for name, description, priority, preemptibility in CATEGORIES
    }
    rows["WorkloadType"].bulk_create(models["WorkloadType"](**fields) for fields in _types(categories))


def _types(categories: dict[str, Any]) -> list[dict[str, Any]]:
    """Fields of every type. A type starts with the defaults of its category."""
    native = [
        _type(categories[category], name=name, title=title, group="run.ai", native=True)
        for name, title, category in NATIVE
    ]
    kinds = [_type(categories[category], name=name, title=title, group=group) for name, title, group, category in KINDS]
    others = [
        {"name": "SPOTRequest", "title": "SPOT request", "group": "egx.nvidia.io"},
        _type(categories["Deploy"], name="NVCF", title="NVCF function", group="run.ai", native=True, fixed=True),
    ]
    return native + kinds + others


def _type(category: Any, **fields: Any) -> dict[str, Any]:
    defaults = {"priority_id": category.priority_id, "preemptibility": category.preemptibility}
    return {"category": category, **defaults, **fields}
