"""Parts of a native spec as the OpenAPI document describes them. Intake checks the values; every field may be null."""

from collections.abc import Mapping
from typing import Any, Final

from rest_framework import serializers

from portal.kit.api.serializers import TypedJson, schema
from workloads.intake.rules.native.fields import FIELDS, POD, Field
from workloads.intake.rules.native.reader import ENVIRONMENT

SUPPORT: Final = {
    "used": "Used.",
    "kept": "Stored and returned, but has no effect.",
    "refused": "Rejected unless empty.",
}
Schema = type[serializers.Serializer[Any]]
OPTIONAL: Final[dict[str, Any]] = {"required": False, "allow_null": True}


def word(about: str = "") -> serializers.CharField:
    """A text."""
    return serializers.CharField(**OPTIONAL, allow_blank=True, help_text=about)


def count(about: str = "") -> serializers.IntegerField:
    """A whole number."""
    return serializers.IntegerField(**OPTIONAL, help_text=about)


def amount(about: str = "") -> serializers.FloatField:
    """A number."""
    return serializers.FloatField(**OPTIONAL, help_text=about)


def flag(about: str = "") -> serializers.BooleanField:
    """True or false."""
    return serializers.BooleanField(**OPTIONAL, help_text=about)


def one(part: Schema) -> serializers.Serializer[Any]:
    """An object."""
    return part(**OPTIONAL)


def many(part: Schema) -> serializers.ListField:
    """A list of objects; null among them counts as left out."""
    return serializers.ListField(child=part(allow_null=True), **OPTIONAL)


def words() -> serializers.ListField:
    """A list of texts; null among them counts as left out."""
    return serializers.ListField(child=serializers.CharField(allow_blank=True, allow_null=True), **OPTIONAL)


_EXCLUDE: Final = "True: the item counts as left out."
ExtendedResource = schema(
    "ExtendedResource", "A device of another name.", resource=word(), quantity=word(), exclude=flag(_EXCLUDE)
)
Compute = schema(
    "Compute",
    "GPUs, CPU and memory of one pod.",
    gpuDevicesRequest=count("Whole GPUs; 1 with a portion."),
    gpuRequestType=word("portion."),
    gpuPortionRequest=amount("A share of one GPU, 0.01 to 1."),
    gpuPortionLimit=amount("As the request."),
    cpuCoreRequest=amount("Cores."),
    cpuCoreLimit=amount("Cores."),
    cpuMemoryRequest=word("A quantity, such as 20G."),
    cpuMemoryLimit=word("A quantity, such as 20G."),
    largeShmRequest=flag("Shared memory up to the memory of the pod."),
    extendedResources=many(ExtendedResource),
)
KeyOfSource = schema("KeyOfSource", "A key of a Secret or ConfigMap that is available.", name=word(), key=word())
PodField = schema("PodField", "A field of the pod.", path=word("Such as metadata.name."))
EnvironmentVariable = schema(
    "EnvironmentVariable",
    "A variable with one source.",
    name=word(),
    value=word(),
    secret=one(KeyOfSource),
    configMap=one(KeyOfSource),
    podFieldRef=one(PodField),
    description=word(),
    exclude=flag(_EXCLUDE),
)
NamedValue = schema("NamedValue", "A label or an annotation.", name=word(), value=word(), exclude=flag(_EXCLUDE))
PullSecret = schema("PullSecret", "A Secret for the registry of the image.", name=word(), exclude=flag(_EXCLUDE))
HttpProbe = schema("HttpProbe", "A request to the pod.", path=word(), port=count(), scheme=word("HTTP or HTTPS."))
ProbeHandler = schema("ProbeHandler", "How the pod is asked.", httpGet=one(HttpProbe))
ReadinessProbe = schema(
    "ReadinessProbe",
    "When and how often the pod is asked.",
    **{
        name: count()
        for name in (
            "initialDelaySeconds",
            "periodSeconds",
            "timeoutSeconds",
            "successThreshold",
            "failureThreshold",
        )
    },
    handler=one(ProbeHandler),
)
Probes = schema("Probes", "The probes of the pod.", readiness=one(ReadinessProbe))
SecuritySettings = schema(
    "SecuritySettings",
    "Restrictions of the container.",
    uidGidSource=word("fromTheImage or custom."),
    runAsUid=count(),
    runAsGid=count(),
    runAsNonRoot=flag("True only."),
    supplementalGroups=word("Numbers, separated by commas."),
    seccompProfileType=word("RuntimeDefault only."),
    readOnlyRootFilesystem=flag(),
    allowPrivilegeEscalation=flag("False only."),
    capabilities=words(),
    hostIpc=flag("False only."),
    hostNetwork=flag("False only."),
)
AccessModes = schema("AccessModes", "Of a claim.", readWriteOnce=flag(), readOnlyMany=flag(), readWriteMany=flag())
ClaimInfo = schema(
    "ClaimInfo",
    "A claim that lives as long as its pod.",
    size=word(),
    storageClass=word(),
    accessModes=one(AccessModes),
    volumeMode=word("Filesystem only."),
)
ClaimMount = schema(
    "ClaimMount",
    "A claim and where it is mounted.",
    name=word(),
    path=word(),
    existingPvc=flag(),
    claimName=word(),
    readOnly=flag(),
    ephemeral=flag(),
    claimInfo=one(ClaimInfo),
    exclude=flag(_EXCLUDE),
)
ScratchMount = schema(
    "ScratchMount",
    "Space that is gone with the pod.",
    name=word(),
    path=word(),
    medium=word("Memory, or empty."),
    sizeLimit=word(),
    exclude=flag(_EXCLUDE),
)
ConfigMapMount = schema(
    "ConfigMapMount",
    "A ConfigMap that is available.",
    name=word(),
    configMap=word(),
    mountPath=word(),
    subPath=word(),
    defaultMode=word("Four octal digits."),
    exclude=flag(_EXCLUDE),
)
SecretMount = schema(
    "SecretMount",
    "A Secret that is available.",
    name=word(),
    secret=word(),
    mountPath=word(),
    defaultMode=word("Four octal digits."),
    exclude=flag(_EXCLUDE),
)
Storage = schema(
    "Storage",
    "Volumes of the pod by their kind.",
    pvc=many(ClaimMount),
    emptyDirVolume=many(ScratchMount),
    configMapVolume=many(ConfigMapMount),
    secretVolume=many(SecretMount),
)
PodToleration = schema(
    "PodToleration",
    "A taint that the pod tolerates.",
    name=word(),
    key=word(),
    operator=word("Equal or Exists."),
    value=word(),
    effect=word("NoSchedule, PreferNoSchedule, NoExecute or Any."),
    seconds=count(),
    exclude=flag(_EXCLUDE),
)
ExposedUrl = schema(
    "ExposedUrl",
    "An address outside the cluster.",
    container=count(),
    url=word(),
    authorizationType=word(),
    authorizedUsers=words(),
    authorizedGroups=words(),
    toolType=word(),
    toolName=word(),
    name=word(),
    exclude=flag(_EXCLUDE),
)
ContainerPort = schema(
    "ContainerPort",
    "A port of the container.",
    container=count(),
    serviceType=word(),
    external=count(),
    toolType=word(),
    toolName=word(),
    name=word(),
    exclude=flag(_EXCLUDE),
)
RelatedUrl = schema("RelatedUrl", "A link.", url=word(), type=word(), name=word(), exclude=flag(_EXCLUDE))
Autoscaling = schema(
    "Autoscaling",
    "A fixed number of replicas: minReplicas and maxReplicas are equal.",
    **{
        name: count()
        for name in (
            "minReplicas",
            "maxReplicas",
            "initialReplicas",
            "activationReplicas",
            "concurrencyHardLimit",
            "scaleToZeroRetentionSeconds",
            "scaleDownDelaySeconds",
            "scaleWindowSeconds",
            "initializationTimeoutSeconds",
            "metricThreshold",
        )
    },
    metric=word(),
    metricThresholdPercentage=amount(),
)
ServingPort = schema(
    "ServingPort",
    "The port that serves. An inference names it container, other kinds port.",
    container=count(),
    port=count(),
    grpcPort=count(),
    metricsPort=count(),
    protocol=word("http or grpc."),
    serviceType=word(),
    authorizationType=word(),
    authorizedUsers=words(),
    authorizedGroups=words(),
    clusterLocalAccessOnly=flag(),
    exposeExternally=flag(),
    exposedUrl=word(),
    exposedProtocol=word(),
)
ServingTimeouts = schema(
    "ServingTimeouts", "Of requests.", initializationTimeoutSeconds=count(), requestTimeoutSeconds=count()
)
ModelClaim = schema(
    "ModelClaim", "The claim that holds a model.", existingPvc=flag(), claimName=word(), readOnly=flag()
)
ModelStore = schema("ModelStore", "Where a model is kept.", pvc=one(ModelClaim))

_TEXTS: Final = (
    "priorityClass",
    "preemptibility",
    "category",
    "image",
    "command",
    "args",
    "workingDir",
    "imagePullPolicy",
    "restartPolicy",
    "startupPolicy",
    "distributedFramework",
    "sshAuthMountPath",
    "mpiLauncherCreationPolicy",
    "cleanPodPolicy",
    "ngcAuthSecret",
)
_COUNTS: Final = (
    "terminationGracePeriodSeconds",
    "autoDeletionTimeAfterCompletionSeconds",
    "backoffLimit",
    "parallelism",
    "completions",
    "numWorkers",
    "minReplicas",
    "maxReplicas",
    "slotsPerWorker",
    "workers",
    "replicas",
)
_FORMS: Final[Mapping[str, Any]] = {
    **{name: word() for name in _TEXTS},
    **{name: count() for name in _COUNTS},
    **{name: flag() for name in ("createHomeDir", "stdin", "tty")},
    "nodePools": words(),
    "compute": Compute(),
    "environmentVariables": many(EnvironmentVariable),
    "labels": many(NamedValue),
    "annotations": many(NamedValue),
    "imagePullSecrets": many(PullSecret),
    "probes": Probes(),
    "security": SecuritySettings(),
    "storage": Storage(),
    "tolerations": many(PodToleration),
    "exposedUrls": many(ExposedUrl),
    "ports": many(ContainerPort),
    "relatedUrls": many(RelatedUrl),
    "autoscaling": Autoscaling(),
    "servingPort": ServingPort(),
    "servingConfiguration": ServingTimeouts(),
    "modelStore": ModelStore(),
}
"""By the name of the field. Fields that must be empty have none."""


def documented(name: str, field: Field) -> serializers.JSONField:
    """A field of a spec: its type, and what becomes of it."""
    about = f"{SUPPORT[field.support]} {field.note}".strip()
    return TypedJson(as_=_FORMS.get(name) or _GROUPS.get(name), **OPTIONAL, help_text=about)


_GROUPS: Final[dict[str, Any]] = {}
_pods: Final = {name: documented(name, field) for name, field in POD.items()}
GroupPod = schema("GroupPod", "The pods of one role.", **_pods)
_GROUPS.update(leader=GroupPod(), worker=GroupPod())
TemplateSpec = schema(
    "TemplateSpec",
    "Fields of a submission's `spec`, as far as its kind has them.",
    **{name: documented(name, field) for fields in FIELDS.values() for name, field in fields.items()},
)
InternalTool = schema(
    "InternalTool", "A tool of the workload.", toolType=word(), connectionType=word(), containerPort=count()
)
ExternalTool = schema("ExternalTool", "A tool elsewhere.", toolType=word(), externalUrl=word())
ToolConnection = schema(
    "ToolConnection",
    "A tool that people open.",
    name=word(),
    isExternal=flag(),
    internalToolInfo=one(InternalTool),
    externalToolInfo=one(ExternalTool),
)
AssetSpec = schema(
    "AssetSpec",
    "Fields of Run:ai's ComputeAssetSpec or EnvironmentAssetSpec, by the kind of the asset.",
    **Compute._declared_fields,
    **{name: documented(name, POD[name]) for name in ENVIRONMENT if name in POD},
    **SecuritySettings._declared_fields,
    stdin=flag(),
    tty=flag(),
    connections=many(ToolConnection),
    overrideUidGidInWorkspace=flag(),
)
