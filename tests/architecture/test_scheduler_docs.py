"""What the documents say of schedulers is what the flavours say of themselves."""

from clusters.flavours.registry import FLAVOURS, guarantees_as_markdown, replace_generated_part
from scheduling.forecast.cycle import FLAVOURS as MODELS
from tests.support.repository import ROOT

DOCUMENT = ROOT / "docs" / "schedulers.md"


def test_the_document_holds_the_guarantees_word_for_word() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == replace_generated_part(text, FLAVOURS), "run: manage.py scheduler_guarantees --write"


def test_every_flavour_answers_for_every_guarantee() -> None:
    said = {name: {each.code for each in flavour.guarantees()} for name, flavour in FLAVOURS.items()}
    everything = set().union(*said.values())
    assert {name: sorted(everything - codes) for name, codes in said.items() if codes != everything} == {}


def test_a_guarantee_that_does_not_hold_says_what_to_do() -> None:
    for flavour in FLAVOURS.values():
        for guarantee in flavour.guarantees():
            assert guarantee.explanation.endswith("."), guarantee.code
            assert guarantee.enforced != "no" or guarantee.remedy, (flavour.name, guarantee.code)


def test_every_flavour_on_offer_has_a_model() -> None:
    assert set(FLAVOURS) == set(MODELS)


def test_no_row_of_the_table_is_short_of_a_cell() -> None:
    rows = [line for line in guarantees_as_markdown(FLAVOURS).splitlines() if line.startswith("|")]
    assert {row.count(" | ") for row in rows} == {len(FLAVOURS)}
