"""docs/migrating-from-runai.md against the client itself and the routes that are served."""

import pytest

from tests.support.runai_methods import methods, table, told

CORE = (
    "authentication_and_authorization.access_keys",
    "authentication_and_authorization.access_rules",
    "authentication_and_authorization.service_accounts",
    "policies.policy",
    "workloads.distributed",
    "workloads.trainings",
    "workloads.workloads",
    "workloads.workloads_v2",
    "workloads.workspaces",
)


def test_the_table_is_what_is_served() -> None:
    assert told() == table(), "python -m tests.support.runai_methods writes it anew"


@pytest.mark.parametrize("group", CORE)
def test_everything_of_a_core_group_is_served(group: str) -> None:
    found = [each for each in methods() if each.group == group]
    assert found
    assert [each.route for each in found if not each.is_served] == []
