"""Amounts as people type and read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.quotas import rules as quotas_rules


@pytest.mark.parametrize(
    ("dimension", "text", "amount"),
    [
        pytest.param("gpu", "6", 6000, id="whole GPUs"),
        pytest.param("gpu", " 0.5 ", 500, id="half a GPU"),
        pytest.param("cpu", "64", 64000, id="cores"),
        pytest.param("cpu", "500m", 500, id="millicores"),
        pytest.param("memory", "512Gi", 512 * 2**30, id="gibibytes"),
        pytest.param("memory", "1000", 1000, id="bytes"),
        pytest.param("gpu", "", None, id="nothing"),
    ],
)
def test_text_becomes_an_exact_amount(dimension: str, text: str, amount: int | None) -> None:
    assert quotas_rules.parse_amount(dimension, text) == amount


@pytest.mark.parametrize("text", ["-1", "0.0001", "1e99", "x", "१", "½", "1 2", "1,5", "+-1"])
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"GPU|quantity|suffix"):
        quotas_rules.parse_amount("gpu", text)


@given(st.sampled_from(["gpu", "cpu", "memory"]), st.none() | st.integers(0, 2**63 - 1))
def test_what_is_shown_is_read_back(dimension: str, amount: int | None) -> None:
    assert quotas_rules.parse_amount(dimension, quotas_rules.format_amount(dimension, amount)) == amount
