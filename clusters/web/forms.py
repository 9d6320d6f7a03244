"""Forms of the clusters' pages. They carry what was typed; what it means is decided by the services."""

import re
from typing import Any, Final

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from clusters.connection.models import METRIC, ClusterCredential, MetricsSource
from clusters.connection.rules.connection_form_data import ConnectionFormData
from clusters.flavours.kube import Kube
from clusters.flavours.objects import MOST_LEVELS
from clusters.flavours.registry import FLAVOURS
from clusters.inventory.models import NodePool
from clusters.inventory.services.inventory import POOL_LABEL
from clusters.ports.flavour import SchedulerFlavour
from portal.kit.errors import RungError
from portal.kit.pages.forms import NOTHING, PageForm

KUBECONFIG: Final = "kubeconfig"
PARTS: Final = "parts"
WAYS: Final = ((KUBECONFIG, _("Paste a kubeconfig")), (PARTS, _("Server, certificate authority and token")))
OF_PARTS: Final = frozenset({"/server", "/ca", "/token", "/tls_server_name", "/insecure", "/name", "/flavour"})


class SecretText(forms.Textarea):
    """A field that is never sent back: what was typed is not shown again, not even to its author."""

    def format_value(self, value: Any) -> str:
        """Always empty."""
        return ""


def _secret(rows: int, **attributes: str) -> SecretText:
    quiet = {"spellcheck": "false", "autocomplete": "off", "autocapitalize": "off", "class": "mono"}
    return SecretText(attrs={"rows": rows, **quiet, **attributes})


class ConnectionForm(PageForm):
    """How a cluster is reached: a kubeconfig, or its parts."""

    way = forms.ChoiceField(choices=WAYS, initial=KUBECONFIG, widget=forms.RadioSelect, label=_("Connection details"))
    kubeconfig = forms.CharField(
        required=False,
        strip=False,
        label=_("Kubeconfig"),
        widget=_secret(10),
        help_text=_(
            "Output of kubectl config view --minify --flatten --raw, with one context. References to files, "
            "programs and proxies are rejected."
        ),
    )
    server = forms.CharField(
        required=False,
        max_length=500,
        label=_("Server"),
        widget=forms.TextInput(attrs={"placeholder": "https://10.20.0.1:6443", "class": "mono", "spellcheck": "false"}),
    )
    ca = forms.CharField(
        required=False,
        strip=False,
        label=_("Authority"),
        widget=forms.Textarea(attrs={"rows": 5, "class": "mono", "spellcheck": "false"}),
        help_text=_("PEM certificates that signed the server's certificate. Empty: public authorities."),
    )
    tls_server_name = forms.CharField(
        required=False,
        max_length=253,
        label=_("TLS server name"),
        help_text=_("Only if the certificate is for another host name than the address."),
    )
    token = forms.CharField(required=False, label=_("Token"), widget=_secret(3))
    insecure = forms.BooleanField(required=False, label=_("Skip verification of the server's certificate"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not settings.RUNG_ALLOW_INSECURE_CLUSTERS:
            del self.fields["insecure"]

    @property
    def source(self) -> bytes | ConnectionFormData:
        """What was typed, as the services read it."""
        typed = self.cleaned_data
        if typed.get("way") == KUBECONFIG:
            return str(typed.get("kubeconfig", "")).encode("utf-8", "replace")
        return ConnectionFormData(
            server=typed.get("server", ""),
            ca=typed.get("ca", ""),
            token=typed.get("token", ""),
            tls_server_name=typed.get("tls_server_name", ""),
            insecure=bool(typed.get("insecure")),
        )

    def show(self, error: RungError, fields: Any = NOTHING) -> None:
        """A problem inside the kubeconfig is shown at its field, with its place in the text."""
        inside = [problem for problem in error.problems if problem.pointer not in OF_PARTS]
        for problem in inside:
            self.add_error(KUBECONFIG if self._pasted else None, problem.placed_message)
        if len(inside) < len(error.problems) or not error.problems:
            rest = [problem for problem in error.problems if problem not in inside]
            super().show(type(error)(error.message, code=error.code, problems=rest), fields)

    @property
    def _pasted(self) -> bool:
        return self.cleaned_data.get("way") == KUBECONFIG


class ConnectForm(ConnectionForm):
    name = forms.CharField(
        max_length=63,
        label=_("Name"),
        help_text=_("Lower-case letters, digits and inner dashes; cannot be changed later."),
    )
    flavour = forms.ChoiceField(
        choices=[(name, flavour.title) for name, flavour in FLAVOURS.items()],
        initial=Kube.name,
        label=_("Scheduler"),
        help_text=_("The connection test shows which schedulers are installed."),
    )
    field_order = ("name", "flavour", "way")


class ReconnectForm(ConnectionForm):
    """Another way to a known cluster. What is public of the way it has now is filled in."""

    adopt = forms.BooleanField(
        required=False,
        label=_("The cluster was recreated"),
        help_text=_("Select if a new cluster replaced the old one. Rung recreates all objects there."),
    )

    def __init__(self, *args: Any, row: ClusterCredential, **kwargs: Any) -> None:
        known = ("server", "ca", "tls_server_name", "insecure")
        super().__init__(*args, initial={"way": PARTS, **{name: getattr(row, name) for name in known}}, **kwargs)
        self.fields["token"].help_text = _(
            "Empty: keep the stored credential. Required when the server, the TLS name, the authority or the "
            "verification changes."
        )


class MetricsForm(PageForm):
    """Where a cluster's Prometheus is. What is public of it is filled in."""

    server = forms.CharField(
        max_length=500,
        label=_("Address"),
        widget=forms.TextInput(attrs={"placeholder": "https://prometheus.example:9090", "class": "mono"}),
    )
    ca = forms.CharField(
        required=False,
        strip=False,
        label=_("Authority"),
        widget=forms.Textarea(attrs={"rows": 5, "class": "mono", "spellcheck": "false"}),
        help_text=_("PEM certificates that signed the server's certificate. Empty: public authorities."),
    )
    token = forms.CharField(
        required=False,
        label=_("Token"),
        widget=_secret(3),
        help_text=_("Empty: no token, or keep the stored one. Required when the address or the authority changes."),
    )
    metric = forms.CharField(
        max_length=128,
        initial=METRIC,
        label=_("Metric"),
        help_text=_(
            "GPU utilization in percent, labelled with the pod. The default is the name used by NVIDIA's DCGM exporter."
        ),
    )

    def __init__(self, *args: Any, row: MetricsSource | None, **kwargs: Any) -> None:
        known = {name: getattr(row, name) for name in ("server", "ca", "metric")} if row else {}
        super().__init__(*args, initial=known, **kwargs)


LEVELS: Final = {f"/topology_levels/{index}": "topology_levels" for index in range(MOST_LEVELS + 1)}
"""Where refusals of single levels are shown."""


class NodePoolFields(PageForm):
    """What makes a node pool: the label of its nodes and, where the scheduler knows such, its topology levels."""

    label_key = forms.CharField(max_length=317, initial=POOL_LABEL, label=_("Node label key"))
    label_value = forms.CharField(max_length=63, label=_("Node label value"))
    topology_levels = forms.CharField(
        required=False,
        max_length=4000,
        label=_("Topology levels"),
        widget=forms.Textarea(attrs={"class": "mono", "rows": 3, "spellcheck": "false", "autocapitalize": "off"}),
        help_text=_(
            "Node label keys, widest first, one per line, such as topology.kubernetes.io/zone. A gang can require "
            "nodes with the same value of a level."
        ),
    )
    is_default = forms.BooleanField(required=False, label=_("Default node pool"))

    def __init__(self, *args: Any, flavour: SchedulerFlavour, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if flavour.traits.shards:
            self.fields["label_key"].initial = flavour.traits.shards[1]
            self.fields["label_key"].help_text = _("KAI needs this label to schedule the pool separately.")
        if not flavour.traits.knows_domains:
            del self.fields["topology_levels"]

    def clean_topology_levels(self) -> list[str]:
        """One a line; commas do as well."""
        return re.findall(r"[^\s,]+", str(self.cleaned_data["topology_levels"]))


class NodePoolForm(NodePoolFields):
    """A new one, with its name."""

    name = forms.CharField(
        max_length=63,
        label=_("Name"),
        help_text=_("Lower-case letters, digits and inner dashes; cannot be changed later."),
    )
    field_order = ("name",)


class NodePoolChangeForm(NodePoolFields):
    """One that is there: its name stays, and it is the default until another one is."""

    def __init__(self, *args: Any, pool: NodePool, **kwargs: Any) -> None:
        label = {"label_key": pool.label_key, "label_value": pool.label_value}
        # With the line ends that browsers send: unchanged levels are then no change.
        initial = {**label, "topology_levels": "\r\n".join(pool.topology_levels)}
        super().__init__(*args, initial=initial, **kwargs)
        if pool.is_default:
            del self.fields["is_default"]


class DisconnectForm(PageForm):
    """Says the cluster's name, so that no wrong one is left."""

    confirm = forms.CharField(
        max_length=63, label=_("Cluster name"), widget=forms.TextInput(attrs={"autocomplete": "off"})
    )

    def __init__(self, *args: Any, name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._name = name

    def clean_confirm(self) -> str:
        typed = str(self.cleaned_data["confirm"])
        if typed != self._name:
            raise forms.ValidationError(_("The name does not match this cluster."))
        return typed
