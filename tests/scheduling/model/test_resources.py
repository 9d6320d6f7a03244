"""Amounts are exact: what cannot be said in thousandths, millicores or bytes is refused where it enters."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.model.resources import UNLIMITED, ZERO, Amount, Limit, Resources, decimal_text, parse_quantity

amounts = st.builds(Resources, *[st.integers(-(10**15), 10**15)] * 3)
bounds = st.none() | st.integers(-(10**15), 10**15)
limits = st.builds(Limit, bounds, bounds, bounds)


@pytest.mark.parametrize(
    ("given_gpu", "milli"),
    [
        pytest.param(2, 2000, id="whole"),
        pytest.param("0.5", 500, id="half, as text"),
        pytest.param(Decimal("0.125"), 125, id="eighth"),
        pytest.param(Fraction(1, 4), 250, id="quarter"),
        pytest.param("250m", 250, id="milli suffix"),
        pytest.param(0, 0, id="none"),
    ],
)
def test_gpus_are_counted_in_thousandths(given_gpu: Amount, milli: int) -> None:
    assert Resources.of(gpu=given_gpu) == Resources(gpu=milli)


@pytest.mark.parametrize(
    "amount",
    [
        pytest.param("0.0005", id="finer than a thousandth"),
        pytest.param(Fraction(1, 3), id="a third"),
        pytest.param(-1, id="negative"),
        pytest.param("-0.5", id="negative text"),
        pytest.param(Decimal("NaN"), id="not a number"),
        pytest.param(Decimal("Infinity"), id="infinite"),
        pytest.param(0.5, id="binary float"),
        pytest.param("1/2", id="a ratio is no quantity"),
        pytest.param("", id="empty"),
        pytest.param("two", id="a word"),
        pytest.param("1e99", id="beyond 64 bits"),
        pytest.param("9" * 60, id="endless digits"),
    ],
)
def test_inexact_or_absurd_amounts_are_refused(amount: Amount) -> None:
    with pytest.raises(ValueError, match=r"GPU|quantity"):
        Resources.of(gpu=amount)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("1", Fraction(1), id="plain"),
        pytest.param(" 2 ", Fraction(2), id="spaces around"),
        pytest.param("1.5Gi", Fraction(3, 2) * 2**30, id="binary"),
        pytest.param("2M", Fraction(2_000_000), id="decimal"),
        pytest.param("500m", Fraction(1, 2), id="milli"),
        pytest.param("3n", Fraction(3, 10**9), id="nano"),
        pytest.param("1e3", Fraction(1000), id="exponent"),
        pytest.param("1E-2", Fraction(1, 100), id="negative exponent"),
        pytest.param("1E", Fraction(10**18), id="exa, not an exponent"),
        pytest.param(".5", Fraction(1, 2), id="leading point"),
        pytest.param("+4k", Fraction(4000), id="sign"),
    ],
)
def test_kubernetes_quantities_are_read_exactly(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["1Xi", "1mm", "1ee", "0x10", "1 Gi", "NaN", "1e999999999"])
def test_other_texts_are_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|suffix"):
        parse_quantity(text)


def test_cpu_is_given_in_cores_and_memory_in_bytes() -> None:
    assert Resources.of(cpu="500m", memory="16Gi") == Resources(cpu=500, memory=16 * 2**30)
    assert Resources.of(cpu=2, memory=1024) == Resources(cpu=2000, memory=1024)
    with pytest.raises(ValueError, match="memory"):
        Resources.of(memory="500m")


@given(amounts, amounts, st.integers(-9, 9))
def test_arithmetic_loses_nothing(one: Resources, other: Resources, times: int) -> None:
    assert one + other - other == one
    assert one * times == Resources(one.gpu * times, one.cpu * times, one.memory * times)
    assert bool(one - one) is False


@given(amounts, amounts)
def test_fitting_is_fitting_in_every_dimension(one: Resources, free: Resources) -> None:
    assert one.fits_in(free) == all(left >= 0 for left in ((free - one).gpu, (free - one).cpu, (free - one).memory))


@given(amounts, limits)
def test_what_is_beyond_a_limit_and_what_is_inside_make_the_whole(amount: Resources, limit: Limit) -> None:
    over = amount.beyond(limit)
    assert amount.within(limit) is (over is None)
    assert amount.clamp(limit) + (over or ZERO) == amount
    assert amount.clamp(limit).within(limit)


def test_negative_parts_can_be_cut_off() -> None:
    assert Resources(-1, 2, -3).floor() == Resources(0, 2, 0)


def test_minus_one_and_nothing_mean_unlimited() -> None:
    assert Limit.of(gpu=-1, cpu="-1", memory=None) == UNLIMITED
    assert Limit.of(gpu="1.5", cpu=1, memory="1Ki") == Limit(1500, 1000, 1024)
    with pytest.raises(ValueError, match="GPU"):
        Limit.of(gpu=-2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(ZERO, "0 GPU", id="nothing"),
        pytest.param(Resources(gpu=1500), "1.5 GPU", id="fraction"),
        pytest.param(Resources(gpu=100_000), "100 GPU", id="no exponent"),
        pytest.param(Resources(cpu=250), "0.25 CPU", id="only CPU"),
        pytest.param(Resources(1000, 2000, 3 * 2**30), "1 GPU, 2 CPU, 3Gi memory", id="everything"),
        pytest.param(Resources(memory=1000), "1000 bytes memory", id="odd memory"),
        pytest.param(UNLIMITED, "unlimited", id="no limit"),
        pytest.param(Limit(0, 500, 2**20), "0 GPU, 0.5 CPU, 1Mi memory", id="limit"),
    ],
)
def test_amounts_read_as_people_write_them(value: Resources | Limit, text: str) -> None:
    assert str(value) == text


def test_a_number_is_printed_without_trailing_zeros() -> None:
    assert decimal_text(2500) == "2.5"
    assert decimal_text(-1000) == "-1"


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ({"gpu": -5}, "GPU -5 is out of range: 0 to 9223372036854775 GPUs"),
        ({"cpu": "-1"}, "CPU -1 is out of range: 0 to 9223372036854775 cores"),
        ({"memory": "9000Pi"}, "memory 9000Pi is out of range: 0 to 8191Pi"),
    ],
)
def test_an_amount_out_of_range_is_refused_with_the_range_and_its_unit(amount: dict[str, int | str], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        Resources.of(**amount)
