"""Forms of the submit page. Intake reads what they carry, and services decide."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from uuid import uuid4

from django import forms
from django.conf import settings
from django.db.models import Max, QuerySet
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, Node, NodePool
from portal.kit.errors import RungError
from portal.kit.pages.formatting import gpus_text
from portal.kit.pages.forms import NOTHING, Offer, PageForm, SearchField
from tenants.organisation.models import Project
from workloads.dictionary.forms import PREEMPTIBILITIES
from workloads.dictionary.models import Priority
from workloads.forecast.rules.forecast import Alternative
from workloads.intake import Explicit, FormFields, WorkloadSpec, form_pointer
from workloads.intake.rules.forms import ENGINES, FRAMEWORKS, RUNS_AS
from workloads.intake.serializers import native_spec, says_the_same
from workloads.intake.services import grants_of
from workloads.policies.rules.merge import imposed
from workloads.policies.selectors import policy_for

POINTERS: Final[Mapping[str, str]] = {
    "/kind": "type",
    "/priority": "priority",
    "/preemptibility": "preemptibility",
    "/nodePools": "node_pool",
    "/nodePools/0": "node_pool",
    "/nodePools/1": "second_pool",
    "/nodePools/2": "third_pool",
    "/metadata/annotations/rung.dev~1min-member": "min_member",
    "/metadata/annotations/rung.dev~1placement": "placement",
    "/metadata/annotations/rung.dev~1topology-key": "topology_key",
}


GANGS: Final = frozenset({"Distributed", "DistributedInference"})
"""Types whose form asks how its pods start together; of another type those fields are hidden and mean nothing."""
LATER_POOLS: Final = ("second_pool", "third_pool")


class SubmitBase(PageForm):
    """What both forms ask: where, and with which priority and preemptibility. An empty choice is no choice."""

    pointers: Mapping[str, str] = POINTERS

    project = SearchField(label=_("Project"))
    node_pool = forms.ChoiceField(label=_("Node pool"), required=False)
    second_pool = forms.ChoiceField(
        label=_("If it does not fit there"),
        required=False,
        help_text=_("Pools are tried in this order until the workload starts."),
    )
    third_pool = forms.ChoiceField(label=_("If it does not fit there either"), required=False)
    priority = forms.ChoiceField(label=_("Priority"), required=False)
    preemptibility = forms.ChoiceField(label=_("Preemptibility"), required=False)
    key = forms.UUIDField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, projects: QuerySet[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast("SearchField", self.fields["project"]).offer(Offer(projects))
        self._projects = projects.select_related("department", "cluster")
        self._clusters = list(Cluster.objects.filter(pk__in=projects.order_by().values("cluster")))
        offered = Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True).order_by("-value")
        pools = NodePool.objects.filter(cluster__in=self._clusters)
        named = list(pools.values_list("name", "topology_levels"))
        names = sorted({name for name, _levels in named})
        self._levels = list(dict.fromkeys(key for _name, levels in named for key in levels))
        self._choices("node_pool", [("", self.NO_POOL), *((name, name) for name in names)])
        for field in LATER_POOLS:
            self._choices(field, [("", _("it waits")), *((name, name) for name in names)])
        self.several_pools = len(names) > 1
        priorities = [(each.name, f"{each.name} {each.value}") for each in offered]
        self._choices("priority", [("", self.NO_PRIORITY), *priorities])
        self._choices("preemptibility", [("", self.NO_PREEMPTIBILITY), *((each, each) for each in PREEMPTIBILITIES)])
        self.fields["key"].initial = uuid4

    NO_POOL: Any = _("the project's default")
    NO_PRIORITY: Any = _("type default")
    NO_PREEMPTIBILITY: Any = _("From type, else from priority")

    def _choices(self, name: str, choices: Sequence[tuple[str, Any]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - declared above
        field.choices = choices

    @cached_property
    def chosen_project(self) -> Project:
        """The project of a valid form."""
        return self._projects.get(name=self.cleaned_data["project"])

    @property
    def explicit(self) -> Explicit:
        """What was chosen outright; it beats a manifest's labels."""
        return Explicit(self.cleaned_data["priority"] or None, self.cleaned_data["preemptibility"] or None)

    @property
    def node_pools(self) -> tuple[str, ...]:
        """The chosen pools in order of preference, once each; none is no choice."""
        chosen = (self.cleaned_data[name] for name in ("node_pool", *LATER_POOLS))
        return tuple(dict.fromkeys(filter(None, chosen)))

    def raws(self, specs: Sequence[WorkloadSpec]) -> list[dict[str, Any]]:
        """What was sent, per workload, for its own people to read."""
        return [{"manifest": spec.manifest} for spec in specs]

    @property
    def idempotency_key(self) -> str | None:
        """A page that is sent twice submits once."""
        key = self.cleaned_data["key"]
        return f"page-{key}" if key else None


class ManifestForm(SubmitBase):
    """A manifest as text."""

    NO_POOL = _("from the manifest, else default")
    NO_PRIORITY = _("from the manifest")
    NO_PREEMPTIBILITY = _("from the manifest")

    text = forms.CharField(
        label=_("Manifest (YAML or JSON)"),
        help_text=_(
            "Rung adds the security settings that the cluster requires. Images that run as root need a "
            "securityContext.runAsUser, or a cluster with the baseline level. Placement annotations: "
            "rung.dev/node-pools (in order of preference), rung.dev/placement (binpack or spread), "
            "rung.dev/topology-key and rung.dev/min-member."
        ),
        strip=False,
        widget=forms.Textarea(
            attrs={"class": "mono", "rows": 24, "spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}
        ),
    )
    field_order = ("project", "text", "priority", "preemptibility", "node_pool")

    def raws(self, specs: Sequence[WorkloadSpec]) -> list[dict[str, Any]]:
        """The text itself; every workload of a file keeps the whole file."""
        return [{"text": self.cleaned_data["text"]} for _spec in specs]

    @property
    def data_bytes(self) -> bytes:
        """The text as it was typed; browsers send lines with a carriage return."""
        text: str = self.cleaned_data["text"]
        return text.replace("\r\n", "\n").encode()


IMAGE_HINT = _(
    "Such as nvcr.io/nvidia/pytorch:25.09-py3; without a registry it is on docker.io. The image must run as a non-root "
    "user unless the cluster allows root."
)


def _line(label: Any, hint: Any = "", *, required: bool = False, **attrs: str) -> forms.CharField:
    return forms.CharField(
        label=label, help_text=hint, required=required, max_length=4000, widget=forms.TextInput(attrs=dict(attrs))
    )


def _count(label: Any, hint: Any = "", *, lowest: int = 1, highest: int = 10_000) -> forms.IntegerField:
    return forms.IntegerField(label=label, help_text=hint, required=False, min_value=lowest, max_value=highest)


WHOLE = _("A whole number.")
SHARED = _("A whole number, or a fraction such as 0.5.")
MIXED = _("A whole number, or a fraction such as 0.5 where the cluster supports GPU sharing.")


def _own_field(pointer: str) -> str:
    return form_pointer(pointer).removeprefix("/")


class FieldsForm(SubmitBase):
    """The fields of Run:ai's own types. Which of them a type needs is said in the page's style sheet."""

    type = forms.ChoiceField(label=_("Workload type"), widget=forms.RadioSelect)
    name = _line(_("Name"), _("Lower-case letters, digits and dashes."), required=True, autocomplete="off")
    image = _line(_("Image"), IMAGE_HINT, required=True)
    gpus = _line(_("GPUs per pod"), inputmode="decimal")
    workers = _count(_("Pods"), _("All pods start together or none."))
    replicas = _count(_("Replicas"))
    framework = forms.ChoiceField(label=_("Framework"), choices=[(each, each) for each in FRAMEWORKS], required=False)
    port = _count(_("Port"), _("Port that the container listens on, such as 8888 for Jupyter."), highest=65_535)
    min_member = _count(_("Start with at least"), _("Minimum number of pods that start together. Empty: all pods."))
    placement = forms.ChoiceField(
        label=_("Its pods"),
        required=False,
        choices=[
            ("", _("scheduler default")),
            ("binpack", _("binpack: on as few nodes as possible")),
            ("spread", _("spread: on as many nodes as possible")),
        ],
    )
    topology_key = _line(
        _("Same topology domain"),
        _("Node label such as topology.kubernetes.io/rack. All pods run on nodes with the same value. Gangs only."),
    )
    model = _line(_("Model"), _("Such as meta-llama/Llama-3.1-8B-Instruct."), autocomplete="off")
    engine = forms.ChoiceField(label=_("Server"), choices=[(each, each) for each in ENGINES], required=False)
    secret = forms.ChoiceField(label=_("Token"), required=False)
    pull_secret = forms.ChoiceField(label=_("Secret to pull the image"), required=False)
    storage = _line(
        _("Volume claim for the model"), _("Empty: the download is deleted with the pod."), autocomplete="off"
    )
    command = _line(_("Command"), _("Split into words like a shell; variables are not expanded."))
    arguments = _line(_("Arguments"))
    cpu = _line(_("CPU per pod"), _("Such as 4 or 500m."))
    memory = _line(_("Memory per pod"), _("Such as 16Gi."))
    environment = forms.CharField(
        label=_("Environment"),
        help_text=_("One NAME=value per line."),
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"class": "mono", "rows": 3, "spellcheck": "false"}),
    )
    checkpoint_interval = _line(
        _("Checkpoint interval"), _("Such as 10m. Used to estimate what an eviction would lose.")
    )
    grace_seconds = _count(_("Seconds between SIGTERM and SIGKILL"), lowest=0, highest=3600)

    field_order = ("project", "type", "name", "image", "gpus")
    TEXTS: Final = ("image", "command", "arguments", "cpu", "memory", "checkpoint_interval")
    OF_MODELS: Final = ("model", "secret", "pull_secret", "storage")

    def __init__(self, *args: Any, types: Sequence[tuple[str, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        types = [(name, title) for name, title in types if any(map(self._is_served, RUNS_AS[name].values()))]
        frameworks = [(name, name) for name, kind in RUNS_AS["Distributed"].items() if self._is_served(kind)]
        self._choices("type", types)
        self._choices("framework", frameworks)
        secrets = [("", _("none")), *((name, name) for name in settings.RUNG_PROJECT_SECRETS)]
        self._choices("secret", secrets)
        self._choices("pull_secret", secrets)
        if self._levels:
            help_text = _("Topology level of the node pools: %(levels)s. Gangs only.")
            self.fields["topology_key"].help_text = help_text % {"levels": ", ".join(self._levels)}
        self.fields["gpus"].help_text = self._sizes()
        self.initial = {"gpus": "1", "type": types[0][0] if types else "", **self.initial}

    def _sizes(self) -> str:
        """What may be asked for on the clusters of the projects."""
        shares = [flavour_for(each).traits.shares_gpus for each in {cluster.flavour for cluster in self._clusters}]
        parts = [str(WHOLE if not any(shares) else SHARED if all(shares) else MIXED)]
        if largest := Node.objects.filter(cluster__in=self._clusters).aggregate(most=Max("gpu_milli"))["most"]:
            parts.append(_("The largest node has %(gpus)s.") % {"gpus": gpus_text(largest)})
        return " ".join(parts)

    def show(self, error: RungError, fields: Mapping[str, str] = NOTHING) -> None:
        """At the form's own fields, also what was found at a place of the manifest that is made of them."""
        super().show(error, {each.pointer: _own_field(each.pointer) for each in error.problems} | dict(fields))

    def _is_served(self, kind: str) -> bool:
        """By a cluster of one of the projects; one that was not observed yet may serve anything."""
        found = [cluster.served_kinds for cluster in self._clusters]
        return not found or any(not served or kind in served for served in found)

    @property
    def imposed(self) -> list[str]:
        """What policies say to workloads of the chosen type in the chosen project, a sentence each."""
        given = getattr(self, "cleaned_data", {})
        return list(imposed(policy_for(given.get("type", ""), self.chosen_project))) if given.get("project") else []

    def raws(self, specs: Sequence[WorkloadSpec]) -> list[dict[str, Any]]:
        """With the native fields that say the same, where there are any: a template can be made of them."""
        fields, (spec,) = self.fields_for_intake, specs
        native = native_spec(fields)
        same = native is not None and says_the_same(fields, native, spec, grants_of(self.chosen_project))
        return [{**raw, **({"native": native} if same else {})} for raw in super().raws(specs)]

    def clean_environment(self) -> tuple[tuple[str, str], ...]:
        """The lines as pairs; a line without an equals sign is refused with its number."""
        pairs = []
        for number, line in enumerate(self.cleaned_data["environment"].splitlines(), start=1):
            name, equals, value = line.partition("=")
            if line.strip() and not equals:
                raise forms.ValidationError(_("Line %(number)s has no “=”."), params={"number": number})
            if line.strip():
                pairs.append((name.strip(), value))
        return tuple(pairs)

    @property
    def fields_for_intake(self) -> FormFields:
        """What intake reads. An empty choice is no choice."""
        given = self.cleaned_data
        return FormFields(
            type=given["type"],
            name=given["name"].strip(),
            gpus=given["gpus"].strip() or "0",
            workers=given["workers"] or 1,
            replicas=given["replicas"] or 1,
            port=given["port"],
            framework=given["framework"] or FRAMEWORKS[0],
            environment=given["environment"],
            grace_seconds=given["grace_seconds"],
            node_pools=self.node_pools,
            priority=given["priority"] or None,
            preemptibility=given["preemptibility"] or None,
            min_member=given["min_member"] if given["type"] == "Distributed" else None,
            placement=given["placement"],
            topology_key=given["topology_key"] if given["type"] in GANGS else "",
            engine=given["engine"] or ENGINES[0],
            **{name: given[name] for name in (*self.TEXTS, *self.OF_MODELS)},
        )


class WayOutForm(forms.Form):
    """A way out of a wait, as the workload's page offers it: one of these, sizes in whole devices, cores and GiB."""

    preemptibility = forms.ChoiceField(choices=[(each, each) for each in PREEMPTIBILITIES], required=False)
    node_pool = forms.CharField(max_length=63, required=False)
    gpus = forms.IntegerField(min_value=1, max_value=64, required=False)
    cpu = forms.IntegerField(min_value=1, max_value=10_000, required=False)
    memory = forms.IntegerField(min_value=1, max_value=1_000_000, required=False)

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if not any(given.values()):
            raise forms.ValidationError("nothing")
        return given

    @property
    def way(self) -> Alternative:
        given = self.cleaned_data
        return Alternative(
            "",
            preemptibility=given["preemptibility"],
            gpus_per_pod=given["gpus"],
            cpus_per_pod=given["cpu"],
            gib_per_pod=given["memory"],
            pool=given["node_pool"],
        )
