"""Distributed training: the Kubeflow family, JobSet, Ray, and the types without a public schema beside them."""

from typing import Final

from workloads.intake.rules.environment import env, mount_path, variable_name
from workloads.intake.rules.kinds.core import REPLICAS, fixed_scale, job_template, not_suspended
from workloads.intake.rules.pods import PLACED, pod_priority_class, pod_spec, template, words
from workloads.intake.rules.scalars import dns_label, image, label_value, resources
from workloads.intake.rules.values import Rule, boolean, choice, forbidden, integer, listing, mapping, only, table, text

RESTARTS: Final = choice("Always", "OnFailure", "Never", "ExitCode")
SECONDS: Final = integer()

run_policy: Rule = table(
    {
        "cleanPodPolicy": choice("All", "Running", "None"),
        "ttlSecondsAfterFinished": SECONDS,
        "activeDeadlineSeconds": integer(1),
        "backoffLimit": integer(),
        "suspend": not_suspended,
        "managedBy": forbidden("Rung sets the controller."),
        "schedulingPolicy": table(
            {
                "minAvailable": integer(1),
                "priorityClass": pod_priority_class,
                "scheduleTimeoutSeconds": SECONDS,
                "queue": forbidden("Rung sets the queue."),
                "minResources": forbidden("Rung counts it from the pods."),
            }
        ),
    }
)


def _replicas(container: str, *roles: str) -> Rule:
    """`<framework>ReplicaSpecs`: the roles its controller knows, each with the container it looks for."""
    group = table(
        {"replicas": REPLICAS, "restartPolicy": RESTARTS, "template": template(pod_spec(named=container))},
        required=["template"],
    )
    return table(dict.fromkeys(roles, group), required=roles[-1:] if len(roles) == 1 else ())


def _kubeflow(member: str, container: str, *roles: str, **extra: Rule) -> Rule:
    fields = {member: _replicas(container, *roles), "runPolicy": run_policy, **extra}
    return table(fields, required=[member])


_elastic: Rule = table(
    {
        "minReplicas": integer(1, 10_000),
        "maxReplicas": integer(1, 10_000),
        "rdzvBackend": choice("c10d", "etcd", "etcd-v2"),
        "rdzvPort": integer(1, 65_535),
        "rdzvId": label_value,
        "nProcPerNode": integer(1, 64),
        "maxRestarts": integer(),
    }
)

_jobs: Rule = listing(
    table(
        {"name": dns_label, "replicas": REPLICAS, "template": job_template, "groupName": dns_label},
        required=["name", "template"],
    ),
    20,
    least=1,
    unique="name",
)
_success: Rule = table(
    {"operator": choice("All", "Any"), "targetReplicatedJobs": listing(dns_label, 20)}, required=["operator"]
)
job_set: Rule = table(
    {
        "replicatedJobs": _jobs,
        "network": table({"enableDNSHostnames": boolean, "subdomain": dns_label, "publishNotReadyAddresses": boolean}),
        "successPolicy": _success,
        "failurePolicy": table({"maxRestarts": integer()}),
        "startupPolicy": table({"startupPolicyOrder": choice("AnyOrder", "InOrder")}),
        "suspend": not_suspended,
        "ttlSecondsAfterFinished": SECONDS,
        "managedBy": forbidden("Rung sets the controller."),
    },
    required=["replicatedJobs"],
)

_START: Final = mapping(text(100, r"[-a-z0-9]+", "a ray start parameter", shortest=1), text(1024), 50)
_head: Rule = table(
    {
        "template": template(pod_spec()),
        "rayStartParams": _START,
        "serviceType": choice("ClusterIP"),
        "enableIngress": forbidden("Ingresses are not allowed."),
        "headService": forbidden("The controller creates the service."),
    },
    required=["template"],
)
_workers: Rule = table(
    {
        "groupName": dns_label,
        "replicas": REPLICAS,
        "minReplicas": REPLICAS,
        "maxReplicas": REPLICAS,
        "numOfHosts": integer(1, 1000),
        "idleTimeoutSeconds": SECONDS,
        "rayStartParams": _START,
        "template": template(pod_spec()),
    },
    required=["groupName", "template"],
)
_CLUSTER: Final[dict[str, Rule]] = {
    "rayVersion": text(20, r"[0-9]+(\.[0-9]+){1,3}", "a Ray version such as 2.46.0"),
    "headGroupSpec": _head,
    "workerGroupSpecs": listing(fixed_scale(_workers), 20, unique="groupName"),
    "enableInTreeAutoscaling": only(
        allowed=False, why="Autoscaling is not supported, because quotas need a fixed number of pods."
    ),
}
ray_cluster_spec: Rule = table(_CLUSTER, required=["headGroupSpec"])
ray_cluster: Rule = table({**_CLUSTER, "suspend": not_suspended}, required=["headGroupSpec"])
_runtime_env: Rule = text(65_536)
ray_job: Rule = table(
    {
        "entrypoint": text(8192, shortest=1),
        "rayClusterSpec": ray_cluster_spec,
        "runtimeEnvYAML": _runtime_env,
        "metadata": mapping(text(253, shortest=1), text(1024), 50),
        "shutdownAfterJobFinishes": boolean,
        "ttlSecondsAfterFinished": SECONDS,
        "activeDeadlineSeconds": integer(1),
        "backoffLimit": integer(),
        "submissionMode": choice("K8sJobMode", "HTTPMode"),
        "submitterPodTemplate": template(pod_spec(restart=("Never", "OnFailure"))),
        "entrypointNumCpus": integer(0, 10_000),
        "suspend": not_suspended,
        "clusterSelector": forbidden("Joining another cluster is not supported."),
    },
    required=["entrypoint", "rayClusterSpec"],
)
ray_service: Rule = table(
    {
        "serveConfigV2": text(65_536, shortest=1),
        "rayClusterConfig": ray_cluster_spec,
        "serviceUnhealthySecondThreshold": SECONDS,
        "deploymentUnhealthySecondThreshold": SECONDS,
        "rayClusterDeletionDelaySeconds": SECONDS,
    },
    required=["rayClusterConfig"],
)

_machine: Rule = table(
    {
        "domain": table(
            {
                "cpu": table({"cores": integer(1, 512), "sockets": integer(1, 16), "threads": integer(1, 8)}),
                "memory": table({"guest": text(20, r"[0-9]+(\.[0-9]+)?[KMGT]i?", "an amount such as 16Gi")}),
                "resources": resources,
                "devices": table(
                    {
                        "disks": listing(
                            table(
                                {"name": dns_label, "disk": table({"bus": choice("virtio", "sata", "scsi")})},
                                required=["name"],
                            ),
                            10,
                            unique="name",
                        ),
                        "gpus": listing(
                            table(
                                {"name": dns_label, "deviceName": choice("nvidia.com/gpu")},
                                required=["name", "deviceName"],
                            ),
                            16,
                            unique="name",
                        ),
                        "interfaces": listing(table({"name": dns_label, "masquerade": table({})}), 1),
                    }
                ),
            },
            required=["devices"],
        ),
        "volumes": listing(
            table(
                {
                    "name": dns_label,
                    "containerDisk": table({"image": image}, required=["image"]),
                    "emptyDisk": table({"capacity": text(20, r"[0-9]+[KMGT]i?", "an amount such as 10Gi")}),
                    "persistentVolumeClaim": table({"claimName": dns_label}, required=["claimName"]),
                },
                required=["name"],
            ),
            10,
            unique="name",
        ),
        "networks": listing(table({"name": dns_label, "pod": table({})}), 1),
        "nodeSelector": PLACED["nodeSelector"],
        "tolerations": PLACED["tolerations"],
        "priorityClassName": pod_priority_class,
        "terminationGracePeriodSeconds": integer(0, 3600),
    },
    required=["domain"],
)

# No public schema of these two is known; the part KAI reads is all that is taken.
_aml_job: Rule = table(
    {
        "job": table(
            {
                "options": table(
                    {
                        "image": image,
                        "command": words,
                        "args": words,
                        "env": env,
                        "envs": mapping(variable_name, text(1024), 100),
                        "resources": resources,
                    },
                    required=["image"],
                )
            },
            required=["options"],
        )
    },
    required=["job"],
)
_spot_request: Rule = table(
    {"image": image, "command": words, "args": words, "env": env, "resources": resources, "replicas": REPLICAS},
    required=["image"],
)

SPECS: Final[dict[str, Rule]] = {
    "PyTorchJob": _kubeflow(
        "pytorchReplicaSpecs", "pytorch", "Master", "Worker", elasticPolicy=_elastic, nprocPerNode=text(8)
    ),
    "TFJob": _kubeflow(
        "tfReplicaSpecs", "tensorflow", "Chief", "Master", "PS", "Worker", "Evaluator", enableDynamicWorker=boolean
    ),
    "MPIJob": _kubeflow(
        "mpiReplicaSpecs",
        "mpi",
        "Launcher",
        "Worker",
        slotsPerWorker=integer(1, 64),
        sshAuthMountPath=mount_path,
        launcherCreationPolicy=only("AtStartup", "Launcher and workers always start together."),
        mpiImplementation=choice("OpenMPI", "Intel", "MPICH"),
    ),
    "XGBoostJob": _kubeflow("xgbReplicaSpecs", "xgboost", "Master", "Worker"),
    "JAXJob": _kubeflow("jaxReplicaSpecs", "jax", "Worker"),
    "JobSet": job_set,
    "RayCluster": ray_cluster,
    "RayJob": ray_job,
    "RayService": ray_service,
    "AMLJob": _aml_job,
    "VirtualMachineInstance": _machine,
    "SPOTRequest": _spot_request,
}
