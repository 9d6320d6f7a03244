"""Every REST route x {own, foreign, absent} x {anonymous, viewer, member, project admin, platform admin, reading key}.

The routes and the right each needs are read from the URL configuration (`Route.access`); what is expected of each cell
follows from these alone. Writes are sent as dry runs, so that all cells see the same world.
"""

from collections.abc import Iterator, Mapping

import pytest
from django.test import Client

from portal.kit.security.request_identity import READING
from tenants.access.models import Role
from tenants.access.rules import READ_PERMISSIONS, Permission, permissions_of_role
from tenants.organisation.models import Project
from tests.support.rest_clients import Person, Robot
from tests.support.route_matrix import BODIES, Cell, cells, world_of

UNREADABLE, NO_TOKEN, FORBIDDEN, ABSENT = {400, 422}, 401, 403, 404
CELLS = cells()
REACHED = {"project", "somewhere", "self"}
"""What a role in a project reaches."""

Answers = Iterator[tuple[Cell, int, bool]]


def ask(client: Client, cell: Cell, ids: Mapping[str, str]) -> int:
    """The status of one cell."""
    query = "" if cell.method in READING or cell.rule.reads else "?dryRun=true"
    body = BODIES.get(str(cell), "")
    return client.generic(cell.method, f"/api/{cell.address(ids)}{query}", body, "application/json").status_code


def allowed(cell: Cell, verbs: frozenset[Permission], *, everywhere: bool = False) -> bool:
    """Does a role with these verbs in its project, or everywhere, hold what the cell needs?"""
    return cell.rule.verb == "" or (Permission(cell.rule.verb) in verbs and (everywhere or cell.rule.at in REACHED))


def answered(cell: Cell, status: int) -> bool:
    """Neither refused nor broken."""
    return status < 500 and status not in {NO_TOKEN, FORBIDDEN, ABSENT}


def refused(cell: Cell, status: int) -> bool:
    """Refused. Where the body names the place, a bad body may be refused first: it tells nothing about the place."""
    return status in {FORBIDDEN, ABSENT} or (status in UNREADABLE and str(cell) not in BODIES)


def wrong(answers: Answers) -> list[str]:
    return [f"{cell}: {status}" for cell, status, right in answers if not right]


def test_without_a_token_every_route_but_the_tokens_own_is_401(client: Client, llm_team: Project) -> None:
    world = world_of(llm_team)

    def answers() -> Answers:
        for cell in CELLS:
            status = ask(client, cell, world.of(cell.path))
            yield cell, status, status == (400 if cell.rule.at == "nowhere" else NO_TOKEN)

    assert wrong(answers()) == []


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER, Role.OWNER])
def test_a_role_in_a_project_is_answered_about_its_own_things_as_its_rights_say(llm_team: Project, role: Role) -> None:
    person = Person("asking", role=role, project=llm_team)
    world = world_of(llm_team, person)

    def answers() -> Answers:
        for cell in CELLS:
            status = ask(person.client, cell, world.of(cell.path))
            yield cell, status, (answered if allowed(cell, permissions_of_role(role)) else refused)(cell, status)

    assert wrong(answers()) == []


def test_a_platform_admin_is_refused_nothing(llm_team: Project) -> None:
    person = Person("asking", role=Role.PLATFORM_ADMIN)
    world = world_of(llm_team, person)
    answers = ((cell, ask(person.client, cell, world.of(cell.path))) for cell in CELLS)
    assert wrong((cell, status, answered(cell, status)) for cell, status in answers) == []


def test_a_viewer_of_the_whole_installation_is_answered_all_that_looks_and_no_more(llm_team: Project) -> None:
    person = Person("looking", role=Role.VIEWER)
    world = world_of(llm_team, person)

    def answers() -> Answers:
        for cell in CELLS:
            status = ask(person.client, cell, world.of(cell.path))
            right = answered if allowed(cell, permissions_of_role(Role.VIEWER), everywhere=True) else refused
            yield cell, status, right(cell, status)

    assert wrong(answers()) == []


def test_the_right_to_look_at_access_opens_every_reading_route_about_access_and_no_writing_one() -> None:
    looking = {str(cell) for cell in CELLS if cell.rule.verb == Permission.VIEW_ACCESS}
    assert all(cell.startswith("GET ") for cell in looking)
    assert {"GET v1/users", "GET v1/service-accounts", "GET v1/authorization/access-rules/<int:rule_id>"} <= looking
    assert not {cell for cell in looking if "password" in cell or "secret" in cell}


def test_a_key_that_only_reads_is_refused_every_write_and_what_needs_the_right_to_write(llm_team: Project) -> None:
    person = Person("reading", role=Role.PLATFORM_ADMIN, read_only=True)
    world = world_of(llm_team, person)

    def answers() -> Answers:
        for cell in CELLS:
            status = ask(person.client, cell, world.of(cell.path))
            reads = cell.method in READING or cell.rule.reads
            right = answered if allowed(cell, READ_PERMISSIONS, everywhere=True) else refused
            yield cell, status, right(cell, status) if reads else status == FORBIDDEN

    assert wrong(answers()) == []


@pytest.mark.parametrize("role", [Role.MEMBER, Role.OWNER])
def test_t50_what_is_foreign_is_answered_as_what_is_absent(llm_team: Project, vision_team: Project, role: Role) -> None:
    robot, foreign = Robot("curious-robot", role=role, project=llm_team), world_of(vision_team)

    def answers() -> Answers:
        for cell in CELLS:
            # Clusters are everybody's to see: there a foreign one is forbidden.
            if cell.things and cell.rule.verb and cell.rule.at not in {"installation", "cluster"}:
                status = ask(robot.client, cell, foreign.of(cell.path))
                yield cell, status, status == ask(robot.client, cell, {}) == ABSENT

    assert wrong(answers()) == []


def test_an_absent_id_is_404_for_a_platform_admin_too(robot: Robot) -> None:
    answers = ((cell, ask(robot.client, cell, {})) for cell in CELLS if cell.things)
    assert wrong((cell, status, status == ABSENT) for cell, status in answers) == []


def conditional(client: Client, cell: Cell, ids: Mapping[str, str], tag: str) -> int:
    body = BODIES.get(str(cell), "")
    path = f"/api/{cell.address(ids)}?dryRun=true"
    return client.generic(cell.method, path, body, "application/json", headers={"If-Match": tag}).status_code


def test_a_stale_tag_stops_every_write_and_the_tag_of_now_none(llm_team: Project) -> None:
    person = Person("asking", role=Role.PLATFORM_ADMIN)
    world = world_of(llm_team, person)

    def answers() -> Answers:
        for cell in CELLS:
            if cell.method in {"PUT", "PATCH", "DELETE"} and "policy" not in cell.path:
                ids = world.of(cell.path)
                above = cell.address(ids) if hasattr(cell.view, "get") else cell.address(ids).rpartition("/")[0]
                read = person.client.get(f"/api/{above}")
                status = conditional(person.client, cell, ids, '"stale"')
                yield cell, status, status == (412 if read.status_code == 200 else read.status_code)
                if read.status_code == 200:
                    status = conditional(person.client, cell, ids, read["ETag"])
                    yield cell, status, status != 412

    assert wrong(answers()) == []
