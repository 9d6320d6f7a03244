"""Minimal valid rows of the tenants' side."""

from typing import Any

import factory
from factory.django import DjangoModelFactory, Password

from tenants.access.models import AccessKey, Membership, Role, ServiceAccount, User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tests.factories.clusters import ClusterFactory, NodePoolFactory

PASSWORD = "correct horse battery staple"
GPU = 1000


class DepartmentFactory(DjangoModelFactory[Department]):
    """A department without quota."""

    cluster = factory.SubFactory(ClusterFactory)
    name = factory.Sequence(lambda n: f"department-{n}")

    class Meta:
        model = Department


class ProjectFactory(DjangoModelFactory[Project]):
    """A project without quota, in its usual namespace."""

    department = factory.SubFactory(DepartmentFactory)
    cluster = factory.SelfAttribute("department.cluster")
    name = factory.Sequence(lambda n: f"project-{n}")
    namespace = factory.LazyAttribute(lambda project: f"runai-{project.name}")

    class Meta:
        model = Project


class DepartmentQuotaFactory(DjangoModelFactory[DepartmentQuota]):
    """16 GPUs deserved, no limit."""

    department = factory.SubFactory(DepartmentFactory)
    node_pool = factory.SubFactory(NodePoolFactory, cluster=factory.SelfAttribute("..department.cluster"))
    gpu_deserved = 16 * GPU

    class Meta:
        model = DepartmentQuota


class ProjectQuotaFactory(DjangoModelFactory[ProjectQuota]):
    """8 GPUs deserved, no limit."""

    project = factory.SubFactory(ProjectFactory)
    node_pool = factory.SubFactory(NodePoolFactory, cluster=factory.SelfAttribute("..project.cluster"))
    gpu_deserved = 8 * GPU

    class Meta:
        model = ProjectQuota


class UserFactory(DjangoModelFactory[User]):
    """A person who can sign in with `PASSWORD`."""

    username = factory.Sequence(lambda n: f"person-{n}")
    password = Password(PASSWORD)

    class Meta:
        model = User


class ServiceAccountFactory(DjangoModelFactory[ServiceAccount]):
    """An enabled account with a secret that matches nothing."""

    name = factory.Sequence(lambda n: f"robot-{n}")
    client_id = factory.SelfAttribute("name")
    secret_hash = "sha256$"

    class Meta:
        model = ServiceAccount


class AccessKeyFactory(DjangoModelFactory[AccessKey]):
    """A person's key with a secret that matches nothing."""

    owner = factory.SubFactory(UserFactory)
    name = factory.Sequence(lambda n: f"key-{n}")
    client_id = factory.LazyAttribute(lambda key: f"{key.name}.0")
    secret_hash = "sha256$"

    class Meta:
        model = AccessKey


class MembershipFactory(DjangoModelFactory[Membership]):
    """A person is a member of a project; name a department or a service account instead where needed."""

    user = factory.SubFactory(UserFactory)
    role = Role.MEMBER
    project = factory.SubFactory(ProjectFactory)

    class Meta:
        model = Membership

    @classmethod
    def _adjust_kwargs(cls, **kwargs: Any) -> dict[str, Any]:
        """Roles may be said by their keys."""
        role = kwargs.pop("role")
        return {**kwargs, **({"role_id": role} if isinstance(role, str) else {"role": role})}
