"""`GET /api/v1/quotas` and `POST /api/v1/quotas/what-if`: the quotas page over REST."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.inventory.models import Cluster, NodePool
from scheduling.model.resources import Resources
from tenants.access.models import Role
from tenants.organisation.models import Department, Project
from tenants.quotas.models import ProjectQuota
from tenants.usage.rules import EvictableWork
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, ProjectFactory, ProjectQuotaFactory
from tests.support.rest_clients import Person, Robot

pytestmark = pytest.mark.django_db
WORK = EvictableWork("llm-team/train, low 40", Resources.of(gpu=4), "0b0e5a3c-0000-4000-8000-000000000000")


@pytest.fixture(autouse=True)
def _full(llm_team: Project, vision_team: Project, h100: NodePool, ledger: Ledger) -> None:
    """KAI: both projects deserve 4 of 16 GPUs and request all; llm-team uses 10 of them."""
    Cluster.objects.update(flavour="kai")
    ledger.holds(llm_team, h100, Usage(Resources.of(gpu=10), Resources.of(gpu=2), Resources.of(gpu=16)))
    ledger.holds(vision_team, h100, Usage(Resources.of(gpu=6), Resources.of(), Resources.of(gpu=16)))
    ledger.work[llm_team.pk, h100.name] = [EvictableWork("llm-team/older, low 40", Resources.of(gpu=6)), WORK]


def ask(robot: Robot, *quotas: dict[str, Any], status: int = 200, **place: str) -> dict[str, Any]:
    answer = robot.send("POST", "v1/quotas/what-if", {"pool": "h100", **place, "quotas": list(quotas)})
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


def gpus(deserved: object, **more: object) -> dict[str, Any]:
    return {"gpu": {"deserved": deserved, **more}}


class TestList:
    """Departments before their projects, pool by pool."""

    def test_a_row_has_the_quota_the_use_and_the_share(self, robot: Robot) -> None:
        answer = robot.get("v1/quotas?pool=h100&department=research").json()
        head, row = answer["quotas"]
        assert (head["kind"], head["name"], head["projectsDeserve"], head["overCommitted"]) == (
            "department",
            "research",
            4.0,
            0.0,
        )
        assert (row["kind"], row["name"], row["department"], row["share"]) == ("project", "llm-team", "research", 8.0)
        assert row["gpu"] == {"deserved": 4, "limit": 12, "overQuotaWeight": 2}
        assert row["use"]["allocated"]["gpu"] == 10.0
        assert row["mayChange"] is True
        (pool,) = answer["pools"]
        assert (pool["physicalGpus"], pool["departmentsDeserve"], pool["projectsDeserve"]) == (16.0, 16.0, 8.0)
        assert pool["rule"]["code"] == "fair_share"

    def test_pages_cover_all_pools_once(self, robot: Robot) -> None:
        names, at = [], 0
        while at is not None:
            answer = robot.get(f"v1/quotas?limit=3&offset={at}").json()
            names += [(each["nodePool"]["name"], each["name"]) for each in answer["quotas"]]
            at = answer["next"]
        assert names == [
            (pool, name) for pool in ("h100", "a100") for name in ("perception", "vision-team", "research", "llm-team")
        ]

    def test_a_page_reaches_over_many_pools_and_sums_up_those_of_other_pages(
        self, robot: Robot, cluster: Cluster, llm_team: Project
    ) -> None:
        last = [NodePoolFactory(cluster=cluster, name=f"pool-{number}") for number in range(6)][-1]
        ProjectQuotaFactory(project=llm_team, node_pool=last, gpu_deserved=3 * GPU)
        whole = robot.get("v1/quotas").json()
        assert [each["nodePool"]["name"] for each in whole["quotas"][::4]] == [
            each["nodePool"]["name"] for each in whole["pools"]
        ]
        assert whole["quotas"][-1]["gpu"]["deserved"] == whole["pools"][-1]["projectsDeserve"] == 3.0
        page = robot.get("v1/quotas?limit=2&offset=30").json()
        assert page == {"quotas": whole["quotas"][30:], "pools": whole["pools"], "next": None}

    def test_queries_do_not_grow_with_projects(self, robot: Robot, research: Department) -> None:
        robot.get("v1/quotas")
        with CaptureQueriesContext(connection) as few:
            robot.get("v1/quotas")
        ProjectFactory.create_batch(20, department=research)
        with CaptureQueriesContext(connection) as many:
            assert len(robot.get("v1/quotas").json()["quotas"]) == 48
        assert len(many) == len(few)

    @pytest.mark.parametrize("name", ["cluster", "pool", "department"])
    def test_unknown_names_are_refused_at_their_parameter(self, robot: Robot, name: str) -> None:
        answer = robot.get(f"v1/quotas?{name}=nowhere")
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["pointer"] == f"/{name}"

    def test_a_member_sees_the_own_project_and_nothing_of_others(self, llm_team: Project) -> None:
        person = Person("member", role=Role.MEMBER, project=llm_team)
        answer = person.client.get("/api/v1/quotas?pool=h100")
        assert [(each["name"], each["mayChange"]) for each in answer.json()["quotas"]] == [("llm-team", False)]
        assert "vision-team" not in answer.content.decode()
        assert person.client.get("/api/v1/quotas?department=perception").status_code == 400


class TestWhatIf:
    """The same numbers as on the page; nothing is stored."""

    def test_shares_reclaimable_work_and_sums(self, robot: Robot, llm_team: Project) -> None:
        found = ask(robot, {"project": "llm-team", "values": gpus(2)}, {"department": "research", "values": gpus(4)})
        assert {(each["name"], each["before"], each["after"]) for each in found["shares"]} == {
            ("research", 8.0, 6.0),
            ("llm-team", 8.0, 6.0),
            ("perception", 8.0, 10.0),
            ("vision-team", 8.0, 10.0),
        }
        assert (found["before"]["departmentsDeserve"], found["after"]["departmentsDeserve"]) == (16.0, 12.0)
        warnings = [each for each in found["warnings"] if each["code"] == "becomes_reclaimable"]
        assert [(each["kind"], each["name"]) for each in warnings] == [
            ("project", "llm-team"),
            ("department", "research"),
        ]
        assert [each["id"] for each in warnings[0]["workloads"]] == [WORK.workload_id]
        assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 4000

    def test_the_overhang_and_the_refusal_that_follows(self, robot: Robot) -> None:
        found = ask(robot, {"project": "llm-team", "values": gpus(0.5)})
        assert found["overhangs"] == [
            {"kind": "project", "name": "llm-team", "held": 2.0, "deserved": 0.5, "over": 1.5}
        ]
        assert [each["code"] for each in found["refusals"]] == ["below_non_preemptible_use"]

    @pytest.mark.parametrize(("enforced", "field"), [(True, "refusals"), (False, "warnings")])
    def test_a_sum_above_its_department_is_refused_where_enforced_and_else_a_warning(
        self, robot: Robot, enforced: bool, field: str
    ) -> None:
        Department.objects.update(enforce_deserved=enforced)
        found = ask(robot, {"project": "llm-team", "values": gpus(9)})
        sums = [
            (at, each["name"])
            for at in ("refusals", "warnings")
            for each in found[at]
            if each["code"] == "sum_over_department"
        ]
        assert sums == [(field, "research")]

    @pytest.mark.parametrize(
        ("entry", "pointer"),
        [
            ({"project": "llm-team", "values": gpus(4, limit=3)}, "/quotas/0/values/gpu/limit"),
            ({"project": "llm-team", "values": gpus(-1)}, "/quotas/0/values/gpu/deserved"),
            ({"project": "llm-team", "values": gpus(1e30)}, "/quotas/0/values/gpu/deserved"),
            ({"project": "llm-team", "values": gpus("many")}, "/quotas/0/values/gpu/deserved"),
            ({"project": "llm-team", "values": gpus(4, overQuotaWeight=-1)}, "/quotas/0/values/gpu/overQuotaWeight"),
            ({"project": "llm-team", "values": {"rank": "highest"}}, "/quotas/0/values/rank"),
            ({"project": "llm-team", "values": {"gpus": 4}}, "/quotas/0/values/gpus"),
            ({"project": "no-such", "values": {}}, "/quotas/0/project"),
            ({"department": "no-such", "values": {}}, "/quotas/0/department"),
            ({"values": {}}, "/quotas/0"),
            ({"project": "llm-team"}, "/quotas/0/values"),
        ],
    )
    def test_bad_input_is_refused_with_a_pointer(self, robot: Robot, entry: dict[str, Any], pointer: str) -> None:
        found = ask(robot, entry, status=422)
        assert [each["pointer"] for each in found["errors"]] == [pointer]

    def test_what_the_caller_may_not_see_is_unknown(self, llm_team: Project) -> None:
        person = Person("member", role=Role.MEMBER, project=llm_team)
        body = {"pool": "h100", "quotas": [{"project": "vision-team", "values": {}}]}
        answer = person.client.post("/api/v1/quotas/what-if", body, "application/json")
        absent = {"pool": "h100", "quotas": [{"project": "no-such", "values": {}}]}
        assert answer.status_code == 422
        assert answer.json() == person.client.post("/api/v1/quotas/what-if", absent, "application/json").json()
