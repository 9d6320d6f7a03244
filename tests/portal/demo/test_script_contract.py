"""What scripts may rely on: people, the service account, the organisation, readiness, and an orderly end."""

from collections import Counter

import pytest

from tests.portal.demo.installation import NAMES, PASSWORD, Demo
from tests.portal.demo.web import Person, Robot, training


@pytest.fixture(scope="module")
def speed() -> int:
    """As a newcomer starts it."""
    return 1


@pytest.fixture(scope="module")
def data() -> None:
    """None: the first start migrates, and loads the organisation."""


@pytest.fixture(scope="module")
def robot(demo: Demo) -> Robot:
    return Robot(demo.origin)


@pytest.mark.parametrize(
    ("name", "sees", "not_yet"),
    [
        pytest.param("admin", "vision-team", "never-founded", id="admin"),
        pytest.param("alice", "llm-team", "vision-team", id="alice"),
        pytest.param("bob", "llm-team", "vision-team", id="bob"),
        pytest.param("charlie", "vision-team", "llm-team", id="charlie"),
    ],
)
def test_each_person_signs_in_and_sees_their_own_projects(demo: Demo, name: str, sees: str, not_yet: str) -> None:
    person = Person(demo.origin, name)
    assert person.first.status == 200
    assert "/login/" not in person.first.url
    projects = person.open("/projects/").words
    assert sees in projects
    assert not_yet not in projects


def test_another_password_signs_nobody_in(demo: Demo) -> None:
    assert "/login/" in Person(demo.origin, "alice", PASSWORD + "!").first.url


def test_alice_owns_what_bob_is_a_member_of(demo: Demo) -> None:
    query = """SELECT u.username, m.role, p.name FROM tenants_membership m JOIN tenants_user u ON u.id = m.user_id
               JOIN tenants_project p ON p.id = m.project_id WHERE u.username IN ('alice', 'bob')"""
    assert set(demo.rows(query)) == {("alice", "owner", "llm-team"), ("bob", "member", "llm-team")}


def test_the_service_account_reads_the_whole_platform(robot: Robot) -> None:
    projects = {each["projectName"] for each in robot.get("v1/workloads?limit=100")["workloads"]}
    assert projects == {"llm-team", "nlp-lab", "speech", "vision-team", "robotics"}


def test_the_organisation_is_of_the_promised_size(demo: Demo) -> None:
    counts = [demo.rows(f"SELECT count(*) FROM {name}")[0][0] for name in ("tenants_department", "tenants_project")]
    assert counts == [2, 5]
    nodes = demo.rows("SELECT p.name, n.gpu_milli FROM clusters_node n JOIN clusters_nodepool p ON p.id = n.pool_id")
    assert len(nodes) == 16
    assert {gpus for _, gpus in nodes} == {8000}
    assert {pool for pool, _ in nodes} == {"h100", "a100"}
    departments = dict(
        demo.rows("SELECT p.name, d.name FROM tenants_project p JOIN tenants_department d ON d.id = p.department_id")
    )
    assert departments["llm-team"] != departments["vision-team"]


def test_some_forty_workloads_stand_in_every_phase(demo: Demo) -> None:
    rows = demo.rows("SELECT phase, phase_reason FROM workloads_workload")
    assert 34 <= len(rows) <= 50
    assert {phase for phase, _ in rows} >= {"Running", "Pending", "Completed", "Failed", "Stopped"}
    waits = Counter(reason for phase, reason in rows if phase == "Pending" and reason)
    assert len(waits) >= 2


def test_its_history_holds_evictions_of_both_causes_and_work_over_quota(demo: Demo) -> None:
    records = demo.rows("SELECT cause, preemptor_name, ran_seconds, lost_gpu_seconds FROM workloads_preemptionrecord")
    assert {cause for cause, *_ in records} == {"preempt", "reclaim"}
    assert all(preemptor and ran > 0 and lost > 0 for _, preemptor, ran, lost in records)
    waited = demo.rows("SELECT count(*) FROM workloads_workload WHERE pending_seconds > 60")
    assert waited[0][0] > 0


def test_the_detectors_have_checked_its_history_from_the_start(demo: Demo) -> None:
    page = Person(demo.origin, "admin").open("/findings/").words
    assert "Last checked" in page
    assert "not checked yet" not in page


def test_the_audit_trail_of_the_demo_verifies(demo: Demo) -> None:
    assert demo.manage("verify_audit").startswith("{")


def test_it_ends_with_every_child_and_starts_again_with_its_data(demo: Demo, robot: Robot) -> None:
    before = {name: demo.pid_of(name) for name in NAMES}
    assert set(before.values()) <= set(demo.processes())
    project = robot.project_id("llm-team")
    answer = robot.submit(project, training("kept-overnight", gpus=1, hours=48))
    assert answer.status == 202, answer.text
    count = demo.rows("SELECT count(*) FROM workloads_workload")

    assert demo.stop() == 0
    assert demo.processes() == {}
    assert list((demo.folder / "pids").iterdir()) == []

    demo.start()
    assert not set(before.values()) & set(demo.processes())
    assert robot.workload(answer.json["metadata"]["id"])["name"] == "kept-overnight"
    assert demo.rows("SELECT count(*) FROM workloads_workload") == count
    assert "/login/" not in Person(demo.origin, "alice").first.url


def test_no_child_fails_while_nobody_harms_it(demo: Demo) -> None:
    said = demo.said()
    assert "ended with code" not in said
    assert "Traceback" not in said
