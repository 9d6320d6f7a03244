"""The select boxes of the pages have the same content as Django's."""

import pytest
from django import forms
from django.forms.renderers import DjangoTemplates
from django.test.html import parse_html

from portal.kit.pages.forms import PageForm

CHOICES = [("", "any"), ("a&b", "A & <b>B</b>"), ("more", [("c", "C"), ("d", "D")]), (7, "seven")]


class Choices(PageForm):
    """One box for one choice, one for several."""

    one = forms.ChoiceField(choices=CHOICES, required=False, help_text="one of them")
    many = forms.MultipleChoiceField(choices=CHOICES, widget=forms.SelectMultiple(attrs={"size": 4}))


@pytest.mark.parametrize("field", ["one", "many"])
@pytest.mark.parametrize("chosen", [[], ["a&b"], ["d"], ["7"], ["unknown"]])
def test_a_select_box_is_that_of_django(field: str, chosen: list[str]) -> None:
    data = {"one": "".join(chosen), "many": chosen}
    ours, theirs = Choices(data), Choices(data, renderer=DjangoTemplates())
    assert parse_html(str(ours[field])) == parse_html(str(theirs[field]))
    assert "<option" in str(ours[field])
