"""T25-T34: texts that would stall, confuse or crash a parser."""

import gc
import gzip
import json
import time
import tracemalloc
from collections.abc import Callable

import pytest

from tests.workloads.intake.manifests import SCOPE, VALID, container, pod, pod_with, read
from workloads.intake import IntakeRefused, ParseLimits, WorkloadSpec, read_json, read_yaml

HEAD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n"
BODY = b"  containers: [{name: main, image: docker.io/a/b:1}]\n"
GENEROUS_SECONDS = 0.5


def yaml_refusal(text: bytes | str) -> IntakeRefused:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(IntakeRefused) as refusal:
        read_yaml(data, scope=SCOPE)
    return refusal.value


def json_refusal(text: bytes | str) -> IntakeRefused:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(IntakeRefused) as refusal:
        read_json(data, scope=SCOPE)
    return refusal.value


def codes(refusal: IntakeRefused) -> set[str]:
    return {problem.code for problem in refusal.problems}


def quickly(act: Callable[[], IntakeRefused]) -> IntakeRefused:
    """Refused in a moment and without growing."""
    gc.disable()  # a collection of whatever other tests left is not its cost
    try:
        started = time.thread_time()  # what it costs, however busy the machine is
        refusal = act()
        spent = time.thread_time() - started
    finally:
        gc.enable()
    tracemalloc.start()
    act()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spent < GENEROUS_SECONDS
    assert peak < 32 * 1024 * 1024
    return refusal


def test_t25_aliases_are_refused_before_they_multiply() -> None:
    laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{after}: &{after} [*{before},*{before},*{before},*{before},*{before},*{before}]\n"
        for before, after in zip("abcdefgh", "bcdefghi", strict=True)
    )
    refusal = quickly(lambda: yaml_refusal(laughs))
    assert refusal.status == 422
    assert codes(refusal) <= {"alias", "anchor"}


@pytest.mark.parametrize("depth", [60, 1_100, 100_000])
def test_t26_deep_nesting_is_refused(depth: int) -> None:
    assert "too_deep" in codes(quickly(lambda: yaml_refusal("[" * depth)))
    assert "too_deep" in codes(quickly(lambda: json_refusal("[" * depth + "]" * depth)))


def test_t26_deep_flow_inside_a_manifest_names_its_line() -> None:
    refusal = yaml_refusal(HEAD + b"  x: " + b"{a: " * 100)
    assert refusal.problems[0].line == 5


def test_t27_large_bodies_are_refused_unread() -> None:
    refusal = quickly(lambda: yaml_refusal(b"a" * (10 * 1024 * 1024)))
    assert refusal.status == 413


def test_t27_many_documents_are_refused() -> None:
    refusal = quickly(lambda: yaml_refusal(b"--- {}\n" * 10_000))
    assert refusal.status == 413


def test_t27_compressed_bodies_are_refused() -> None:
    assert json_refusal(gzip.compress(b" " * 10_000_000)).status == 413


def test_t27_the_caps_are_arguments() -> None:
    with pytest.raises(IntakeRefused) as refusal:
        read_json(json.dumps(VALID["Job"]()).encode(), scope=SCOPE, limits=ParseLimits(nodes=3))
    assert refusal.value.status == 413


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [id]", "!!binary aGk=", "!own x", "!!str 5"])
def test_t28_tags_are_refused(tag: str) -> None:
    assert codes(yaml_refusal(HEAD + BODY + f"  hostname: {tag}\n".encode())) == {"tag"}


def test_t29_repeated_keys_are_refused_in_yaml_at_their_line() -> None:
    refusal = yaml_refusal(HEAD + BODY + b"  priorityClassName: low\n  priorityClassName: high\n")
    assert [(each.pointer, each.line) for each in refusal.problems] == [("/spec/priorityClassName", 7)]


@pytest.mark.parametrize(
    "text",
    ['{"kind": "Pod",\n "kind": "Job"}', '{"spec": {"privileged": false,\n "privileged": true}}', '[{"a":1,\n"a":1}]'],
)
def test_t29_repeated_keys_are_refused_in_json_at_their_line(text: str) -> None:
    refusal = json_refusal(text)
    assert codes(refusal) == {"repeated_key"}
    assert refusal.problems[0].line == 2


def test_t30_merge_keys_are_refused() -> None:
    assert codes(yaml_refusal(HEAD + b"  <<: {hostNetwork: true}\n" + BODY)) == {"merge_key"}


@pytest.mark.parametrize("text", ["no", "1:30", "010", "2030-01-31", "Off", "0o10", "1_000"])
def test_t31_words_that_yaml_once_read_as_something_else_stay_text(text: str) -> None:
    (spec,) = read_yaml(HEAD + BODY.replace(b"name: main", b'name: main, args: ["x"]'), scope=SCOPE)
    assert spec.manifest["spec"]["containers"][0]["args"] == ["x"]
    (spec,) = read_yaml(HEAD + BODY.replace(b"name: main", f"name: main, args: [{text}]".encode()), scope=SCOPE)
    assert spec.manifest["spec"]["containers"][0]["args"] == [text]


def test_t31_a_number_where_text_is_wanted_is_refused_with_the_remedy() -> None:
    refusal = yaml_refusal(HEAD + BODY.replace(b"name: main", b"name: main, args: [8]"))
    assert "in quotes" in refusal.problems[0].message


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\xfa",
        HEAD + BODY + b"  hostname: a\x00b\n",
        b"\xef\xbb\xbf" + HEAD + BODY,
        HEAD + BODY + b'  hostname: "\\ud800"\n',
        HEAD + BODY + "  hostname: a\u202eb\n".encode(),
    ],
    ids=["not utf-8", "NUL", "byte order mark", "half a character", "right-to-left override"],
)
def test_t32_characters_no_database_should_hold(data: bytes) -> None:
    assert yaml_refusal(data).status in {400, 422}


@pytest.mark.parametrize("text", ["a\u0000b", "\ud800", "a\u202eb", "\ufeffx"])
def test_t32_the_same_escaped_in_json(text: str) -> None:
    body = pod_with(args=[text])
    assert json_refusal(json.dumps(body)).status == 422


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "9" * 400])
def test_t33_numbers_nothing_can_hold_are_refused(number: str) -> None:
    text = json.dumps(VALID["Job"]()).replace('"Never"', f'"Never", "terminationGracePeriodSeconds": {number}')
    refusal = quickly(lambda: json_refusal(text))
    assert refusal.problems[0].pointer == "/spec/template/spec/terminationGracePeriodSeconds"


def test_t33_fifty_thousand_keys_are_refused() -> None:
    assert quickly(lambda: json_refusal(json.dumps({str(n): n for n in range(50_000)}))).status in {413, 422}


NASTY = ("-rf", "{{ 7*7 }}", "{0.__class__}", "${jndi:ldap://x}", "; rm -rf /", "%s%n", "<script>alert(1)</script>")


@pytest.mark.parametrize("text", NASTY)
def test_t34_template_and_shell_tricks_are_kept_verbatim(text: str) -> None:
    spec = read(pod_with(args=[text], env=[{"name": "X", "value": text}]))
    kept = spec.manifest["spec"]["containers"][0]
    assert (kept["args"], kept["env"][0]["value"]) == ([text], text)
    assert WorkloadSpec.from_json(json.loads(json.dumps(spec.as_json()))) == spec


@pytest.mark.parametrize("text", ["{", "a: [", "\t- x", "a: b: c", "'"])
def test_unreadable_syntax_is_400_with_a_line(text: str) -> None:
    refusal = yaml_refusal(text)
    assert refusal.status == 400
    assert refusal.problems[0].line is not None


@pytest.mark.parametrize("text", [b"", b"# only a comment\n", b"---\n---\n"])
def test_nothing_at_all_is_refused(text: bytes) -> None:
    assert codes(yaml_refusal(text)) == {"empty"}


def test_every_problem_of_a_file_is_told_at_once_with_its_line() -> None:
    refusal = yaml_refusal(HEAD + b"  hostNetwork: true\n  hostPID: true\n  containers: [{name: main, image: X}]\n")
    found = {each.pointer: each.line for each in refusal.problems}
    assert found == {"/spec/hostNetwork": 5, "/spec/hostPID": 6, "/spec/containers/0/image": 7}


def test_problems_are_capped() -> None:
    body = pod(**{f"field{n}": 1 for n in range(200)}, containers=[container()])
    assert len(json_refusal(json.dumps(body)).problems) == 50
