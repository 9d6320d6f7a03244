"""Strict JSON costs time in proportion to its size, whatever is in it."""

import json
import time

import pytest

from portal.kit.api.parsers import LARGEST_BODY, strict_json
from portal.kit.errors import RungError, ValidationFailed

FAR_TOO_LONG = 1.0
"""Seconds of processor time; comparing every key with every other takes minutes."""


def test_t19_a_repeated_key_is_found_among_tens_of_thousands_at_once() -> None:
    keys = [f"{number:022}" for number in range(19_000)]
    body = ("{" + ",".join(f'"{key}":1' for key in [*keys, keys[-1]]) + "}").encode()
    assert LARGEST_BODY * 0.9 < len(body) < LARGEST_BODY
    start = time.process_time()
    with pytest.raises(ValidationFailed) as refused:
        strict_json(body)
    assert time.process_time() - start < FAR_TOO_LONG
    assert [(each.pointer, each.code) for each in refused.value.problems] == [(f"/{18_999:022}", "repeated_key")]


def test_what_is_no_json_is_refused_at_its_line() -> None:
    with pytest.raises(Exception, match="at line 2"):
        strict_json(json.dumps({"a": 1}, indent=0).replace("1", "x").encode())


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (b"\xff", "not_utf8", ""),
        (b'{"a": ', "json_syntax", ""),
        (b"[" * 101 + b"]" * 101, "too_deep", ""),
        (b"[" + b"0," * 30_000 + b"0]", "too_many_nodes", ""),
        (b'{"a": {"b/c": [1, 99999999999999999999]}}', "number_too_large", "/a/b~1c/1"),
        (b'{"a": {"b": 1e400}}', "number_too_large", "/a/b"),
        (b"99999999999999999999", "number_too_large", ""),
        (b'{"a": [{"b": -Infinity}]}', "not_a_number", "/a/0/b"),
        (b'{"a": {"b": 1, "b": 2}}', "repeated_key", "/a/b"),
        (b'{"a": {"b": NaN}, "a": 1}', "repeated_key", "/a"),
    ],
)
def test_a_refused_body_has_a_pointer_to_its_part_or_to_the_whole(body: bytes, code: str, pointer: str) -> None:
    with pytest.raises(RungError) as refused:
        strict_json(body)
    assert refused.value.code == code
    assert [(each.pointer, each.code) for each in refused.value.problems] == [(pointer, code)]


def test_a_fraction_of_many_digits_is_a_number() -> None:
    assert strict_json(b'{"a": 0.' + b"1" * 60 + b"}")["a"] == pytest.approx(1 / 9)
