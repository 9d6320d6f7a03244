"""Robots, and people by an access key, that speak REST."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services import credentials, subjects
from tenants.access.services.credentials import exchange
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory


class Robot:
    """A service account with a token of its own."""

    def __init__(self, name: str, **scope: Any) -> None:
        self.account, self.secret = subjects.create_service_account(name=name, actor=SYSTEM, **scope)
        self.client = Client(headers={"Authorization": f"Bearer {exchange(name, self.secret).text}"})

    def get(self, path: str) -> Any:
        return self.client.get(f"/api/{path}")

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        content = body if isinstance(body, str | bytes) else "" if body is None else json.dumps(body)
        return self.client.generic(method, f"/api/{path}", content, "application/json", headers=headers)


class Person:
    """Somebody whose program asks with an access key of theirs; they have another key besides."""

    def __init__(self, name: str, *, role: str, project: Project | None = None, read_only: bool = False) -> None:
        self.user = MembershipFactory(user__username=name, role=role, project=project).user
        key, secret = credentials.create_access_key(name="asking", actor=acting(self.user), read_only=read_only)
        self.spare, _ = credentials.create_access_key(name="spare", actor=acting(self.user))
        self.client = Client(headers={"Authorization": f"Bearer {exchange(key.client_id, secret).text}"})


@pytest.fixture
def robot(llm_team: Project) -> Robot:
    """A platform admin."""
    return Robot("platform-robot", role=Role.PLATFORM_ADMIN)


@pytest.fixture
def member(llm_team: Project) -> Robot:
    """A member of llm-team only."""
    return Robot("member-robot", role=Role.MEMBER, project=llm_team)


@pytest.fixture
def submitted(robot: Robot, llm_team: Project) -> Callable[..., str]:
    """Submits a training job and answers its id."""

    def submit(name: str = "train", project: Project = llm_team, gpus: int = 1) -> str:
        container = {"name": "main", "image": "docker.io/a/b:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        spec = {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [container]}}}}}
        container["name"] = "pytorch"
        manifest = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}
        body = {"metadata": {"projectId": str(project.pk)}, "manifest": manifest}
        response = robot.send("POST", "v2/workloads", body)
        assert response.status_code == 202, response.content
        return str(response.json()["metadata"]["id"])

    return submit
