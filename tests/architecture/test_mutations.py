"""The seeded mutations still apply: a rule that has moved keeps its mutation."""

import pytest

from tests.mutations import MUTATIONS, Mutation, occurrences
from tests.support.repository import ROOT


def test_there_are_forty_different_mutations() -> None:
    assert len({(each.file, each.old, each.new) for each in MUTATIONS}) == len(MUTATIONS) == 40


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_mutation_changes_one_place_and_names_tests_that_exist(mutation: Mutation) -> None:
    assert occurrences(mutation) == 1
    assert mutation.old != mutation.new
    assert mutation.tests
    assert all((ROOT / test.partition("::")[0]).is_file() for test in mutation.tests)
