"""A body of 512 kB costs at most 50 ms of processor time in any parser, whatever is in it.

The bound is a multiple of what the standard library needs to read as many bytes of plain JSON, measured beside it
(3.5 ms where the bound was set), so that a slow or busy machine does not fail it.
"""

import csv
import gc
import io
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest
from django.utils import timezone

from clusters.connection.rules.kubeconfig import read_kubeconfig
from portal.kit.api.parsers import LARGEST_BODY, StrictFormParser, strict_json
from portal.kit.api.request_limits import MOST_ESCAPES
from portal.kit.errors import PayloadTooLarge, RungError, ValidationFailed
from portal.kit.security.strict_json import DocumentInvalid, ParseLimits, document_from_json
from portal.kit.security.strict_yaml import documents_from_yaml
from tenants.quotas.admin.csv_import import LARGEST_FILE, MOST_LINES, BoundedCSV
from tests.workloads.intake.manifests import SCOPE
from workloads.intake.rules.manifests import read_json, read_yaml

SIZE: Final = LARGEST_BODY
ALLOWED: Final = 50 / 3.5 * 1.5
"""Times the plain reading: 50 ms, and half as much again for what the two measurements differ by."""
ALLOWED_JSON: Final = 35 / 3.5 * 1.5
"""The same for bodies of JSON, which every client sends: at most 26 ms were measured."""
TRIES: Final = 5
PLAIN: Final = json.dumps(["a" * 10] * (SIZE // 14))


@pytest.fixture(scope="module", autouse=True)
def without_garbage_of_other_tests() -> None:
    """Exclude what other tests left from garbage collection: a full collection of it takes up to a second."""
    gc.collect()
    gc.freeze()


def seconds(read: Callable[[Any], object], data: Any) -> float:
    """Of processor time."""
    start = time.process_time()
    with suppress(RungError, DocumentInvalid, ValueError, csv.Error):
        read(data)
    return time.process_time() - start


def check_cost(read: Callable[[Any], object], data: Any, allowed: float = ALLOWED) -> None:
    ratios: list[float] = []
    while not ratios or (min(ratios) > allowed and len(ratios) < TRIES):
        ratios.append(seconds(read, data) / seconds(json.loads, PLAIN))
    assert min(ratios) <= allowed


def filled(unit: str, size: int = SIZE, *, around: str = "[]", between: str = ",") -> str:
    count = (size - 2) // (len(unit) + len(between))
    return around[:1] + between.join([unit] * count) + around[1:]


def counted(unit: Callable[[int], str], count: int, *, around: str = "[]") -> str:
    return around[:1] + ",".join(map(unit, range(count))) + around[1:]


def deep(count: int, levels: int) -> str:
    return counted(lambda _: "[" * levels + "]" * levels, count // levels)


NODES: Final = ParseLimits().nodes
JSON_SHAPES: Final = {
    "empty lists": filled("[]"),
    "empty objects": filled("{}"),
    "numbers": filled("0"),
    "long numbers": filled("9" * 19),
    "one long number": "1" * SIZE,
    "long floats": filled("1." + "1" * 300),
    "nesting": "[" * SIZE,
    "nesting below the cap": deep(19_700, 95),
    "as many parts as allowed": counted(lambda number: f'"{number:020}"', 19_900),
    "as many members as allowed": counted(lambda number: f'"{number:015}":0', 19_900, around="{}"),
    "escaped keys": counted(lambda number: f'"\\u0061\\u0061\\u0061{number}":0', 19_000, around="{}"),
    "one key again and again": filled('"a":0', around="{}"),
    "escapes": '"' + "\\u00e9" * (SIZE // 6 - 1) + '"',
    "backslashes": '"' + "\\\\" * (SIZE // 2 - 1) + '"',
    "a string that does not end": '"' + "\\\\" * (SIZE // 2 - 1),
    "strings without commas": "[" + '"a" ' * (SIZE // 4 - 1),
    "newlines": "\n" * (SIZE - 1) + "1",
    "spaces": " " * (SIZE - 1) + "1",
    "JSON in a string": json.dumps(filled("0", SIZE - 10)),
}
SMALL: Final = ParseLimits().size
YAML_SHAPES: Final = {
    "flow numbers": filled("0"),
    "flow maps": filled("{}"),
    "as many items as allowed": "".join(f"- {number:020}\n" for number in range(NODES - 5)),
    "as many members as allowed": "".join(f"k{number:020}: 0\n" for number in range(NODES // 2 - 5)),
    "quoted items with escapes": counted(lambda _: '"' + "\\n" * 8 + '"', NODES - 5),
    "nesting below the cap": deep(NODES - 50, 38),
    "flow nesting": "[" * SMALL,
    "block nesting": "- " * (SMALL // 2),
    "anchors": filled("&a 0", SMALL),
    "aliases": "a: &a 0\nb: " + filled("*a", SMALL - 20),
    "tags": filled("!!str 0", SMALL),
    "documents": "---\n" * (SMALL // 4),
    "documents with ends": "a\n...\n" * (SMALL // 6),
    "comments": "#\n" * (SMALL // 2),
    "items with comments": "".join("- 0 #" + "a" * 15 + "\n" for _ in range(NODES - 5)),
    "questions": "? " * (SMALL // 2),
    "colons": "a:" * (SMALL // 2),
    "lines of plain text": "a\n" * (SMALL // 2),
    "folded blank lines": ">\n" + "\n" * (SMALL - 2),
    "escapes": '"' + "\\u00e9" * (SMALL // 6 - 1) + '"',
    "a long number": "1" * SMALL,
    "newlines": "\n" * SMALL,
}
POD: Final = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n"
MAIN: Final = POD + "  containers:\n  - name: main\n    image: docker.io/a/b:1\n"
MANIFESTS: Final = {
    "unknown fields": POD + "".join(f"  k{number}: 0\n" for number in range(4900)),
    "nearly known fields": MAIN + "".join(f"    volumeMount{number}: 0\n" for number in range(4900)),
    "unknown fields of many documents": "---\n".join(
        POD + "".join(f"  k{number}: 0\n" for number in range(230)) for _ in range(20)
    ),
    "arguments": MAIN + "    args:\n" + "    - x\n" * 9000,
    "equal variables": MAIN + "    env:\n" + "    - {name: A, value: b}\n" * 1600,
    "containers": POD
    + "  containers:\n"
    + "".join(f"  - {{name: c{number}, image: docker.io/a/b:1}}\n" for number in range(1900)),
    "a long image": MAIN.replace("docker.io/a/b:1", "a/" * 120_000),
    "a long quantity": MAIN + "    resources: {limits: {cpu: '" + "1" * 240_000 + "'}}\n",
}
HEAD: Final = "project,pool,reason,gpu_deserved\n"
CSV_SHAPES: Final = {
    "lines": HEAD + "a\n" * (SIZE // 2),
    "commas": "," * SIZE,
    "as many lines as allowed": HEAD + ("a" * 90 + ",b,c,1\n") * (MOST_LINES - 5),
    "many columns": ("a" + "," * 500 + "\n") * (SIZE // 502),
    "a quote that does not end": HEAD + '"' * (SIZE - 100),
}


def shapes(table: dict[str, str]) -> Any:
    return pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in table.items()])


@shapes(JSON_SHAPES)
def test_a_json_body(text: str) -> None:
    check_cost(strict_json, text.encode()[:SIZE], ALLOWED_JSON)


@shapes(JSON_SHAPES)
def test_a_json_document_and_the_line_of_a_problem(text: str) -> None:
    check_cost(lambda data: document_from_json(data, ParseLimits()).line_of("/x"), text.encode()[:SMALL], ALLOWED_JSON)


@shapes(YAML_SHAPES)
def test_a_yaml_document_and_the_lines_of_a_problem(text: str) -> None:
    check_cost(lambda data: [each.line_of("/x/y") for each in documents_from_yaml(data, ParseLimits())], text.encode())


@shapes(YAML_SHAPES)
def test_a_kubeconfig(text: str) -> None:
    check_cost(lambda data: read_kubeconfig(data, now=timezone.now()), text.encode())


@shapes(MANIFESTS)
def test_a_manifest_with_all_its_problems(text: str) -> None:
    check_cost(lambda data: read_yaml(data, scope=SCOPE), text.encode())


@shapes(JSON_SHAPES)
def test_a_json_manifest(text: str) -> None:
    check_cost(lambda data: read_json(data, scope=SCOPE), text.encode()[:SMALL])


@shapes(CSV_SHAPES)
def test_a_csv_file(text: str) -> None:
    check_cost(BoundedCSV().create_dataset, text[:SIZE])


@pytest.mark.parametrize("escape", ["%", "%41", "%FF"])
def test_a_form_of_a_token_request_and_one_of_a_page(escape: str) -> None:
    text = "a=" + escape * (SIZE // len(escape) - 2)
    check_cost(lambda data: StrictFormParser().parse(io.BytesIO(data)), text.encode())
    check_cost(parse_qsl, "a=" + escape * MOST_ESCAPES)


def test_the_caps_that_hold_it_are_refusals_with_a_code() -> None:
    for text, refusal, code in (
        (filled("0", 50_000), PayloadTooLarge, "too_many_nodes"),
        ("[" * 101 + "]" * 101, ValidationFailed, "too_deep"),
        (json.dumps(filled("0", 50_000)), PayloadTooLarge, "too_many_nodes"),
    ):
        with pytest.raises(refusal) as refused:
            strict_json(text.encode())
        assert refused.value.code == code
    assert strict_json(counted(lambda _: "[0]", 9_990).encode())
    assert strict_json(("[" * 99 + "]" * 99).encode())
    in_text = json.dumps(["\\" * 3 + '"[' * 200 + "," * 30_000, [], '\\"', {"a\\": []}] * 2)
    assert strict_json(in_text.encode()) == json.loads(in_text)
    for text in ("[" * 50 + '"\\\\"' + "," + "[" * 51, '["\\"",' + "[" * 100, "[[]]," * 40 + "[" * 101):
        with pytest.raises(ValidationFailed, match="levels"):
            strict_json(text.encode())
    for big in ("a\n" * (MOST_LINES + 1), "a" * (LARGEST_FILE + 1)):
        with pytest.raises(PayloadTooLarge, match="5000 lines and 512 kB"):
            BoundedCSV().create_dataset(big)
    with pytest.raises(PayloadTooLarge):
        StrictFormParser().parse(io.BytesIO(b"a=" + b"b" * 16 * 1024))


def test_keys_of_yaml_count_as_parts() -> None:
    limits = ParseLimits(nodes=10)
    assert documents_from_yaml(b"a: 1\nb: 2\nc: 3\nd: 4\n", limits)
    with pytest.raises(DocumentInvalid) as refused:
        documents_from_yaml(b"a: 1\nb: 2\nc: 3\nd: 4\ne: 5\n", limits)
    assert refused.value.problems[0].code == "too_many_nodes"
