"""Strict JSON costs time in proportion to its size, whatever is in it."""

import json
import time

import pytest

from portal.kit.api.parsers import LARGEST_BODY, strict_json
from portal.kit.errors import ValidationFailed

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
