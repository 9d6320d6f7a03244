"""A project's quotas as texts to copy: what they say is what is there, so sending it back changes nothing."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

from django.test import Client

from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.support.rest_clients import Robot

Clients = Callable[[User], Client]


def texts(client: Client) -> dict[str, str]:
    page = client.get("/projects/llm-team/").content.decode()
    found = re.findall(r'<pre[^>]*id="copy-text-(\w+)">(.*?)</pre>', page, re.DOTALL)
    return {name: html.unescape(text) for name, text in found}


def amounts() -> list[dict[str, Any]]:
    return list(ProjectQuota.objects.order_by("pk").values())


def test_the_call_says_what_is_there(client_of: Clients, admin: User, llm_team: Project) -> None:
    ProjectQuota.objects.update(cpu_weight=0.5)
    before = amounts()
    head, body = texts(client_of(admin))["curl"].split("<<'JSON'\n")
    sent = json.loads(body.removesuffix("\nJSON"))
    path = re.search(r"/api/(\S+?)'?\s", head)
    assert path
    robot = Robot("quotas", role=Role.PLATFORM_ADMIN)
    assert robot.send("PUT", path[1], sent).status_code == 200
    same = ("gpu_deserved", "gpu_limit", "cpu_deserved", "memory_limit", "over_quota_weight", "cpu_weight", "rank")
    assert [{name: row[name] for name in same} for row in amounts()] == [
        {name: row[name] for name in same} for row in before
    ]
    sent["resources"][0]["gpu"]["deserved"] += 1
    assert robot.send("PUT", path[1], sent).status_code == 200
    assert amounts()[0]["gpu_deserved"] == before[0]["gpu_deserved"] + 1000


def test_members_who_may_not_change_them_are_not_told(client_of: Clients, bob: User, llm_team: Project) -> None:
    assert texts(client_of(bob)) == {}
