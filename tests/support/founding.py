"""Fill the empty database of a process stack: one cluster, projects with room, a service account.

`Stack.found` runs it in a process of its own with the stack's settings: wishes as JSON come in, what was made goes out.
Wishes: `server`, `ca` and `token` of a real cluster, or `nodes` of a sandbox; `projects` by name; `gpus` that each
deserves; `password` of a person `admin`, if there is to be one.
"""

import json
import sys
from typing import Any

from clusters.connection.rules.connection_form_data import ConnectionFormData
from clusters.connection.services.registration import create_cluster, register_cluster
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import create_node_pool
from clusters.sandbox.services.simulation import create_sandbox_nodes
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Limit
from tenants.access.models import User
from tenants.access.services import subjects
from tenants.organisation import services as organisation_services
from tenants.organisation.models import Department, Project
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services import quotas

GPU = 1000
NAME = "stack"
POOL = "lab"


def found(wishes: dict[str, Any]) -> dict[str, Any]:
    """Everything through the services, as an admin's pages do it."""
    pool = _pool(_cluster(wishes))
    if "server" not in wishes:
        size = {"count": wishes["nodes"], "gpus": 8, "cpu": 128, "memory": "2Ti", "gpu_type": "NVIDIA-H100-80GB-HBM3"}
        create_sandbox_nodes(cluster=pool.cluster, pool=pool, actor=SYSTEM, **size)
    department = organisation_services.create_department(cluster=pool.cluster, name=NAME, actor=SYSTEM)
    values = QuotaValues(deserved=Limit(gpu=wishes["gpus"] * GPU * len(wishes["projects"]), cpu=None, memory=None))
    quotas.set_department_quota(department=department, node_pool=pool, values=values, actor=SYSTEM, reason="founding")
    projects = [_project(department, pool, name, wishes["gpus"]) for name in wishes["projects"]]
    _, secret = subjects.create_service_account(name=NAME, role="platform-admin", actor=SYSTEM)
    if "password" in wishes:
        _admin(wishes["password"])
    named = {each.name: {"id": str(each.pk), "namespace": each.namespace} for each in projects}
    return {"client_id": NAME, "client_secret": secret, "projects": named}


def _cluster(wishes: dict[str, Any]) -> Cluster:
    if "server" not in wishes:
        return create_cluster(name=NAME, flavour="kai", backend="sandbox", actor=SYSTEM)
    source = ConnectionFormData(wishes["server"], ca=wishes["ca"], token=wishes["token"])
    cluster, report = register_cluster(name=NAME, flavour="kube", source=source, actor=SYSTEM)
    if report.error or report.lacking:
        raise SystemExit(f"{report.error} {report.lacking}")
    return cluster


def _pool(cluster: Cluster) -> NodePool:
    return create_node_pool(cluster=cluster, name=POOL, label_value=POOL, is_default=True, actor=SYSTEM)


def _project(department: Department, pool: NodePool, name: str, gpus: int) -> Project:
    project = organisation_services.create_project(department=department, name=name, actor=SYSTEM)
    values = QuotaValues(deserved=Limit(gpu=gpus * GPU, cpu=None, memory=None))
    quotas.set_project_quota(project=project, node_pool=pool, values=values, actor=SYSTEM, reason="founding")
    return project


def _admin(password: str) -> None:
    admin = User(username="admin", is_staff=True, is_superuser=True, email="admin@rung.example")
    admin.set_password(password)
    subjects.save_user(user=admin, actor=SYSTEM)


def main() -> None:
    """Print the account's id and secret, and the id and namespace of each project."""
    sys.stdout.write(json.dumps(found(json.load(sys.stdin))))
