"""T58: what a pod writes cannot act on a terminal, reorder a page or fill it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.watch.rules import LONGEST_LINE, clean, tail

ESC, BEL, ST = "\x1b", "\x07", "\x1b\\"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(f"{ESC}[31mred{ESC}[0m alert", "red alert", id="colours"),
        pytest.param(f"{ESC}[2J{ESC}[1;1Hgone", "gone", id="clearing the screen"),
        pytest.param(f"{ESC}]8;;https://evil.example{BEL}here{ESC}]8;;{BEL}", "here", id="a link by OSC 8"),
        pytest.param(f"{ESC}]8;;https://evil.example{ST}here{ESC}]8;;{ST}", "here", id="one ended by ST"),
        pytest.param(f"{ESC}]0;title{BEL}after", "after", id="a window title"),
        pytest.param(f"before{ESC}]52;c;ZXZpbA==", "before", id="a sequence without an end"),
        pytest.param(f"{ESC}Pq#0{ST}image", "image", id="a device control string"),
        pytest.param("\x9b31mred\x9d8;;x\x9chere", "redhere", id="eight-bit forms"),
        pytest.param(f"{ESC}(B{ESC}c{ESC}=plain", "plain", id="character sets and reset"),
        pytest.param(f"{ESC}[31", "", id="an unfinished colour"),
        pytest.param("a\x00b\x08c\x7fd", "abcd", id="control characters"),
        pytest.param("10%\r55%\r100%\r\n", "100%", id="a progress bar's last state"),
        pytest.param("loss\t0.5", "loss\t0.5", id="tabs stay"),
        pytest.param("safe\u202eexe.gpj\u2066", "safeexe.gpj", id="reordering marks"),
        pytest.param("a\ud800b", "ab", id="half a surrogate"),
        pytest.param("<script>alert(1)</script>", "<script>alert(1)</script>", id="markup is the template's to escape"),
    ],
)
def test_t58_sequences_and_controls_are_stripped(written: str, read: str) -> None:
    assert clean(written) == read


def test_t58_a_long_line_is_cut_and_says_so() -> None:
    assert clean("x" * 10_000_000) == "x" * LONGEST_LINE + " … (truncated)"


@given(st.text(st.characters(), max_size=200))
def test_t58_whatever_is_written_nothing_acts(line: str) -> None:
    read = clean(line)
    assert not [each for each in read if (ord(each) < 32 and each != "\t") or 127 <= ord(each) < 160]
    assert clean(read) == read


def test_the_end_of_a_log_is_kept_and_the_cut_is_told() -> None:
    whole = tail(["one", "two", "three"], most_lines=3)
    assert (whole.lines, whole.cut) == (("one", "two", "three"), False)
    few = tail(["one", "two", "three"], most_lines=2)
    assert (few.lines, few.cut) == (("two", "three"), True)
    short = tail(["one", "two", "three"], most_lines=3, most_characters=6)
    assert (short.lines, short.cut) == (("three",), True)
