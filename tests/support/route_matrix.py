"""Every REST route as the URL configuration has it, and what its paths can name in the cast of the tests."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.urls import URLPattern, URLResolver, get_resolver

from clusters.connection.models import MetricsSource
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.security.actors import SYSTEM, Actor
from tenants.access.models import Role
from tenants.access.services.roles import create_role
from tenants.organisation.models import Project
from tenants.quotas.models import IdleLimit, MinRuntime, PriorityCap, TimeLimit
from tests.factories.cast import acting, department_with_quota, lab_cluster, project_with_quota
from tests.factories.tenants import AccessKeyFactory, MembershipFactory, ServiceAccountFactory, UserFactory
from tests.factories.workloads import (
    AssetFactory,
    FindingFactory,
    ObservedPodFactory,
    QuotaRequestFactory,
    ReplayFactory,
    ReportFactory,
    WorkloadFactory,
    WorkloadTemplateFactory,
)
from tests.support.rest_clients import Person, Robot
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.notifications.models import NotificationChannel, Subscription
from workloads.notifications.services.mail import completed
from workloads.plans.services.plans import plan_change
from workloads.workload_templates.models import Asset, WorkloadTemplate

ABSENT = {"uuid": str(uuid4()), "int": "999999", "str": "no-such-thing"}
_PARAMETER = re.compile(r"<(?:(?P<kind>\w+):)?(?P<name>\w+)>")


@dataclass(frozen=True, slots=True)
class Cell:
    """One method of one route."""

    path: str
    """As configured, with its parameters: `v1/org-unit/projects/<int:unit_id>`."""
    method: str
    rule: RoutePermission
    view: type[Route]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def things(self) -> list[str]:
        """The parameters that name things: all but the kinds of workloads and policies."""
        return [found["name"] for found in _PARAMETER.finditer(self.path) if found["kind"] not in WORDS]

    def address(self, values: Mapping[str, str]) -> str:
        """The path with a value for every parameter; `absent` ids where a value is missing."""

        def value(found: re.Match[str]) -> str:
            kind, name = found["kind"] or "str", found["name"]
            return WORDS[kind] if kind in WORDS else values.get(name, ABSENT[kind])

        return _PARAMETER.sub(value, self.path)


BODIES: Mapping[str, str] = {
    "PUT v1/org-unit/projects/<int:unit_id>": '{"resources": []}',
    "PUT v1/org-unit/projects/<int:unit_id>/resources": "[]",
    "PATCH v1/org-unit/projects/<int:unit_id>/resources": "[]",
    "PUT v1/org-unit/departments/<int:unit_id>": '{"resources": []}',
    "PUT v1/org-unit/departments/<int:unit_id>/resources": "[]",
    "PATCH v1/org-unit/departments/<int:unit_id>/resources": "[]",
}
"""Bodies that are good; every other write is sent without one."""
WORDS = {
    "native": "trainings",
    "stoppable": "trainings",
    "policy": "trainings",
    "template": "trainings",
    "changeable": "trainings",
    "asset": "compute",
}
"""Path converters that choose a kind, and one of their words."""


def cells() -> list[Cell]:
    """Every method of every route below /api/ but the OpenAPI document and its page."""
    return [Cell(path, method, rule, view) for path, view in _views() for method, rule in sorted(view.access.items())]


def _views() -> Iterator[tuple[str, type[Route]]]:
    api = next(each for each in get_resolver().url_patterns if str(each.pattern) == "api/")
    for path, view in _below("", api.url_patterns):
        if isinstance(view, type) and issubclass(view, Route):
            yield path, view


def _below(prefix: str, patterns: list[URLPattern | URLResolver]) -> Iterator[tuple[str, object]]:
    for each in patterns:
        path = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _below(path, each.url_patterns)
        else:
            yield path, getattr(each.callback, "cls", None)


@dataclass(frozen=True, slots=True)
class World:
    """What paths can name: the ids of things by the parameter of the path."""

    ids: Mapping[str, str]
    project: Project

    def of(self, path: str) -> Mapping[str, str]:
        """Values for the parameters of a path."""
        unit = self.project.pk if "projects" in path else self.project.department_id
        return {"unit_id": str(unit), **self.ids}


def prepared_for(project: Project, keeper: Actor) -> Mapping[str, Asset | WorkloadTemplate]:
    """A template of a training, one of an inference, and a size, as somebody keeps them in the project."""
    kept = {"project": project, "scope": "project", "created_by_kind": str(keeper.kind), "created_by_id": keeper.id}
    return {
        "template": WorkloadTemplateFactory(kind="trainings", **kept),
        "inference_template": WorkloadTemplateFactory(kind="inferences", **kept),
        "asset": AssetFactory(**kept),
    }


def world_of(project: Project, person: Person | None = None) -> World:
    """A project with native workloads in it, and an access key: the person's, or somebody else's."""
    by = {"submitted_by_kind": "user", "submitted_by_id": str(person.user.pk)} if person else {}
    workload, serving, group, nim = (
        WorkloadFactory(project=project, type=WorkloadType.objects.get(name=name), **by)
        for name in ("Training", "Inference", "DistributedInference", "NIMInference")
    )
    by_kind = {"inference_id": serving, "distributed_inference_id": group, "nim_service_id": nim}
    first = {**by_kind, "type_id": WorkloadType.objects.first(), "category_id": Category.objects.first()}
    first["priority_id"] = Priority.objects.get(name="very-low")
    first["rule_id"] = MembershipFactory(project=project)
    first["role_id"] = create_role(name="Custom", permission_sets=["view"], actor=SYSTEM)
    first |= {
        "key_id": person.spare if person else AccessKeyFactory(),
        "account_id": ServiceAccountFactory(),
        "user_id": UserFactory(),
    }
    words = {"workload_id": str(workload.pk), "set_id": "view"}
    first |= {"pool_id": project.cluster.node_pools.first(), "node_id": project.cluster.nodes.first()}
    words |= {"cluster_id": str(project.cluster_id), "pool_name": first["pool_id"].name}
    MetricsSource.objects.get_or_create(cluster=project.cluster, defaults={"server": "https://prometheus.example.org"})
    # Secrets that do not open: nothing is ever sent.
    mail = {"name": "mail", "config": completed({"from": "rung@example.org"}), "sealed": "unreadable"}
    words["channel_name"] = NotificationChannel.objects.create(**mail).name
    hook = {"name": "hook", "type": "webhook", "config": {"url": "https://192.0.2.1/"}}
    words["webhook_name"] = NotificationChannel.objects.create(**hook).name
    first["subscription_id"] = Subscription.objects.create(
        subject_kind="user", subject_id=str(person.user.pk) if person else "0"
    )
    words["priority_name"] = PriorityCap.objects.create(project=project, priority="high", gpu_limit=2000).priority
    for owner in ({"project": project}, {"department": project.department}):
        MinRuntime.objects.create(minutes=10, **owner)
        for limit in (TimeLimit, IdleLimit):
            words["category_name"] = limit._default_manager.create(category="Train", minutes=600, **owner).category
    first["report_id"] = ReportFactory(subject_id=str(person.user.pk) if person else "0")
    first["finding_id"] = FindingFactory(cluster=project.cluster, project=project)
    first["replay_id"] = ReplayFactory(cluster=project.cluster)
    keeper = acting(person.user) if person else SYSTEM
    first["request_id"] = QuotaRequestFactory(
        project=project, node_pool=first["pool_id"], author_id=str(person.user.pk) if person else "0"
    )
    first |= {f"{name}_id": row for name, row in prepared_for(project, keeper).items()}
    quota = {"project": project.name, "pool": first["pool_id"].name, "values": {}, "reason": ""}
    first["plan_id"] = plan_change(kind="project_quota", change=quota, actor=SYSTEM)
    words["pod_id"] = ObservedPodFactory(workload=workload).uid
    return World({**words, **{name: str(row.pk) for name, row in first.items()}}, project)


@pytest.fixture(scope="module")
def shared_world(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    """The project llm-team with all of `world_of`, made once for a module. What one of its tests writes is undone."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield world_of(project_with_quota(department_with_quota(lab_cluster(), "research"), "llm-team"))
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def shared_robot(shared_world: World) -> Robot:
    """A platform admin beside the shared world."""
    return Robot("platform-robot", role=Role.PLATFORM_ADMIN)
