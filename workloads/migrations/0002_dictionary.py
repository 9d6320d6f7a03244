"""The seven Run:ai levels, the three categories and every workload type Run:ai lists, as literal data."""

from typing import Any

from django.db import migrations

LEVELS = [
    ("very-low", 25, "Scavenges what nobody else wants; first to give way."),
    ("low", 40, "Training by default."),
    ("medium-low", 65, "A little before ordinary training."),
    ("medium", 80, "Ahead of training, still preemptible unless set."),
    ("medium-high", 90, "Highest level that is preemptible unless set."),
    ("high", 125, "Interactive work by default; non-preemptible unless set."),
    ("very-high", 150, "Inference by default; non-preemptible unless set."),
]

CATEGORIES = [
    ("Build", "Interactive work: notebooks, development environments, plain Jobs.", "high", "non-preemptible"),
    ("Train", "Training, single or distributed.", "low", "preemptible"),
    ("Deploy", "Inference and everything that serves.", "very-high", "non-preemptible"),
]

NATIVE = [
    ("Workspace", "Workspace", "Build"),
    ("Training", "Standard training", "Train"),
    ("Distributed", "Distributed training", "Train"),
    ("Inference", "Custom inference", "Deploy"),
    ("DistributedInference", "Distributed inference", "Deploy"),
    ("NIMInference", "NVIDIA NIM inference", "Deploy"),
    ("HuggingFaceInference", "Hugging Face inference", "Deploy"),
]

KINDS = [
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


def fill(apps: Any, _schema_editor: Any) -> None:
    """Write the dictionary, the categories and the types; nothing is there before."""
    priorities = _levels(apps.get_model("workloads", "Priority"))
    categories = _categories(apps.get_model("workloads", "Category"), priorities)
    workload_type = apps.get_model("workloads", "WorkloadType")
    for name, title, category in NATIVE:
        _add_type(workload_type, categories[category], name=name, title=title, group="run.ai", native=True)
    for name, title, group, category in KINDS:
        _add_type(workload_type, categories[category], name=name, title=title, group=group)
    workload_type.objects.create(name="SPOTRequest", title="SPOT request", group="egx.nvidia.io")
    _add_type(
        workload_type, categories["Deploy"], name="NVCF", title="NVCF function", group="run.ai", native=True, fixed=True
    )


def _levels(model: Any) -> dict[str, Any]:
    return {
        name: model.objects.create(name=name, value=value, description=description, source="Run:ai")
        for name, value, description in LEVELS
    }


def _categories(model: Any, priorities: dict[str, Any]) -> dict[str, Any]:
    return {
        name: model.objects.create(
            name=name, description=description, priority=priorities[priority], preemptibility=preemptibility
        )
        for name, description, priority, preemptibility in CATEGORIES
    }


def _add_type(model: Any, category: Any, **fields: Any) -> None:
    model.objects.create(
        category=category, priority_id=category.priority_id, preemptibility=category.preemptibility, **fields
    )


def clear(apps: Any, _schema_editor: Any) -> None:
    """Take the literal rows back; refused by the database while workloads use them."""
    for name in ("WorkloadType", "Category", "Priority"):
        apps.get_model("workloads", name).objects.all().delete()


class Migration(migrations.Migration):
    """Literal data."""

    dependencies = [("workloads", "0001_initial")]

    operations = [migrations.RunPython(fill, clear)]
