"""One flavour at a time of a control plane that serves the resources of KAI and Volcano."""

import uuid
from dataclasses import replace
from typing import Any

from clusters.connection.rules.connection_form_data import ConnectionFormData
from clusters.connection.services.connection_test import ConnectionReport, try_connection
from clusters.connection.services.gateways import forget_gateways, gateway_for
from clusters.connection.services.registration import register_cluster
from clusters.connection.services.scheduler_config import eviction_exemptions
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.connection import Connection
from clusters.ports.flavour import DesiredState, JobSpec, TopologyDomain
from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.objects import (
    KAI_QUEUE,
    KAI_TOPOLOGY,
    NAMESPACE,
    PRIORITY_CLASS,
    VOLCANO_HYPER_NODE,
    VOLCANO_POD_GROUP,
    VOLCANO_QUEUE,
    ref_of,
)
from clusters.sync.services import object_reads
from clusters.sync.services.reconcile import reconcile
from portal.kit.security.actors import SYSTEM
from scheduling.model.preemptibility import EvictionExemptions
from tests.clusters.specs import POOL, Wanted, job, priority, project, queue, state
from tests.support.lab import LabCluster
from tests.workloads.intake.manifests import VALID
from workloads.intake import ProjectGrants, read_object

RACKED = replace(
    POOL,
    topology_levels=("example.com/block", "example.com/rack"),
    domains=(TopologyDomain(("1", "a"), ("n1", "n2")), TopologyDomain(("1", "B_b"), ("n3",))),
)
QUEUES: dict[str, Kind] = {"kai": KAI_QUEUE, "volcano": VOLCANO_QUEUE}


def clear(lab: LabCluster, *kinds: Kind) -> None:
    """What is Rung's of these kinds goes: the next test finds a cluster without any."""
    for kind in kinds:
        for each in lab.admin.list(kind, labels="app.kubernetes.io/managed-by=rung"):
            lab.admin.delete(ref_of(each))


class Real:
    """One flavour's side of the cluster, and what it should hold."""

    def __init__(self, lab: LabCluster, flavour: str) -> None:
        self.lab, self.flavour = lab, flavour
        self.mark = f"{flavour}-{uuid.uuid4().hex[:6]}"  # a namespace that goes takes a while
        self.wanted = Wanted(DesiredState())
        entered = ConnectionFormData(server=lab.server, ca=lab.ca, token=lab.token)
        self.cluster: Cluster = register_cluster(name=flavour, flavour=flavour, source=entered, actor=SYSTEM)[0]
        self.gateway = gateway_for(self.cluster)

    @property
    def namespace(self) -> str:
        """Of the first project."""
        return f"runai-{self.mark}-p1"

    def priority_name(self, name: str) -> str:
        return f"{self.mark}-{name}"

    def hold(self, *, limit: int = 16, generation: int = 1) -> DesiredState:
        """Two priorities, a department and two projects, the second with another limit where told."""
        projects = [
            replace(project(f"{self.mark}-p{number}", owner=f"project.{number}", limit=16), generation=1)
            for number in (1, 2)
        ]
        leaf = queue("project.2", limit=limit, generation=generation)
        projects[1] = replace(projects[1], queues=(leaf,), generation=generation)
        department = queue("department.1", parent=None, deserved=8, limit=32)
        priorities = (priority(self.priority_name("high"), 125), priority(self.priority_name("low"), 40))
        self.wanted.state = state(*projects, priorities=priorities, departments=(department,), pools=(RACKED,))
        return self.wanted.state

    def furnish(self) -> None:
        """All of that is there, and namespaces take pods."""
        self.hold()
        reconcile(self.cluster)
        service_account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.lab.admin.wait_until(ObjectRef(self.lab.admin.ref(service_account).kind, "default", self.namespace))

    def live(self) -> dict[str, Manifest]:
        """All that is ours, by kind and name."""
        kinds = flavour_for(self.flavour).kinds()
        found = [each for kind in kinds for each in self.gateway.list(kind)[0]]
        return {f"{each['kind']}/{each['metadata']['name']}": each for each in found if not is_leaving(each)}

    def submitted(self, name: str, **fields: Any) -> JobSpec:
        """A workload of a type as intake and submission hand it over."""
        namespace = self.namespace
        spec = read_object(VALID[name](), scope=ProjectGrants(namespace=namespace, allowed_registries=("*",)))
        return job(
            spec.manifest,
            name=f"{name.lower()}-1",
            namespace=namespace,
            priority_class=self.priority_name("low"),
            **{"min_member": spec.min_member, **fields},
        )

    def group_of(self, spec: JobSpec) -> int | None:
        """How many pods start together, where Rung wrote a group for the workload."""
        found = self.lab.admin.get(ObjectRef(VOLCANO_POD_GROUP, spec.name, spec.namespace))
        return found["spec"]["minMember"] if found else None

    def report(self) -> ConnectionReport:
        """What the connection test says."""
        return try_connection(Connection(self.lab.server, ca=self.lab.ca, token=self.lab.token), self.flavour)

    def exemptions(self) -> EvictionExemptions:
        """What is kept of its configuration after everything was looked at."""
        object_reads.forget(self.cluster.pk)
        reconcile(self.cluster)
        return eviction_exemptions(Cluster.objects.get(pk=self.cluster.pk))

    def end(self) -> None:
        """Nothing of it is left in the way of the next flavour."""
        clear(self.lab, QUEUES[self.flavour], KAI_TOPOLOGY, VOLCANO_HYPER_NODE, NAMESPACE, PRIORITY_CLASS)
        forget_gateways()


def is_leaving(manifest: Manifest) -> bool:
    """Its deletion is under way."""
    return "deletionTimestamp" in manifest["metadata"]
