"""Numbers, times and marks as people read them."""

from datetime import UTC, datetime, timedelta

import pytest
from django.template import Context, Template

from portal.kit.pages.formatting import QuotaBar, age_of, duration_text, gpu_text, gpus_text

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


def drawn(source: str, **context: object) -> str:
    return Template("{% load rung %}" + source).render(Context(context))


@pytest.mark.parametrize(
    ("milli", "text"),
    [
        pytest.param(0, "0 GPUs", id="none"),
        pytest.param(1000, "1 GPU", id="one"),
        pytest.param(500, "0.5 GPUs", id="half of one"),
        pytest.param(125, "0.125 GPUs", id="nothing is rounded"),
        pytest.param(10_000, "10 GPUs", id="no exponent"),
    ],
)
def test_gpus_carry_their_unit(milli: int, text: str) -> None:
    assert gpus_text(milli) == text
    assert text.startswith(gpu_text(milli))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(0, "0 s", id="nothing"),
        pytest.param(-5, "0 s", id="a clock that ran ahead"),
        pytest.param(59, "59 s", id="seconds"),
        pytest.param(7 * 60 + 52, "7 min", id="no seconds beside minutes"),
        pytest.param(3599, "59 min", id="less than an hour"),
        pytest.param(20_400, "5 h 40 m", id="the two largest units"),
        pytest.param(3600, "1 h", id="a full hour"),
        pytest.param(86_400 + 60, "1 d", id="an empty unit ends it"),
        pytest.param(2 * 86_400 + 3 * 3600, "2 d 3 h", id="days"),
    ],
)
def test_durations_are_human(seconds: float, text: str) -> None:
    assert duration_text(seconds) == duration_text(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "tone"),
    [
        pytest.param(30, "fresh", id="half a minute"),
        pytest.param(31, "amber", id="more than 30 s"),
        pytest.param(300, "amber", id="five minutes"),
        pytest.param(301, "old", id="more than 5 min"),
    ],
)
def test_an_old_reading_says_so(seconds: int, tone: str) -> None:
    age = age_of(NOW - timedelta(seconds=seconds), now=NOW)
    assert age.tone == tone
    assert ("not current" in age.words) is (tone == "old")


def test_what_was_never_observed_has_no_age() -> None:
    assert age_of(None, now=NOW).words == "never observed"


def test_the_bar_splits_use_at_the_deserved_quota() -> None:
    bar = QuotaBar(deserved=8000, used=12_000, non_preemptible=4000, limit=16_000)
    assert (bar.in_quota, bar.over_quota, bar.remaining) == (8000, 4000, 0)
    assert bar.widths == {
        "deserved": "50.00%",
        "in_quota": "50.00%",
        "guaranteed": "25.00%",
        "over": "25.00%",
        "limit": "100.00%",
    }


def test_an_unlimited_queue_has_no_tick() -> None:
    assert QuotaBar(deserved=0, used=0, non_preemptible=0, limit=None).widths["limit"] == ""


def test_the_ladder_says_its_rung_aloud() -> None:
    markup = drawn("{% ladder 'high' 125 %}", priority_values=[25, 40, 65, 80, 90, 125, 150])
    assert 'aria-label="priority high, 125, rung 6 of 7"' in markup
    assert markup.count('class="lit"') == 6
    assert markup.count('class="unlit"') == 1


@pytest.mark.parametrize(
    ("word", "shape"),
    [
        ("preemptible", "#shield"),
        ("semi-preemptible", "#shield-half-filled"),
        ("non-preemptible", "#shield-filled"),
    ],
)
def test_the_shield_carries_its_word(word: str, shape: str) -> None:
    markup = drawn("{% shield word %}", word=word)
    assert f'{shape}"' in markup
    assert f"{word}</span>" in markup


def test_a_name_is_text_whatever_it_holds() -> None:
    name = "<script>alert(1)</script>"
    markup = drawn("{% load workload_filters %}{% ladder name 1 %}{% phase name %}{{ name|reason }}", name=name)
    assert "<script" not in markup


def test_the_quota_bar_has_a_text_twin() -> None:
    markup = drawn("{% quota_bar deserved=8000 used=10000 non_preemptible=4000 limit=None %}")
    assert "10 GPUs in use, 8 deserved" in " ".join(markup.split())
    assert "2 over quota" in markup
    assert "no limit" in markup
