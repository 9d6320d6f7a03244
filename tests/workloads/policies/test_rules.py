"""How policies of several scopes add up, whatever they say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.model.preemptibility import Preemptibility
from tests.builders import RUNAI
from workloads.dictionary.rules.resolution import Effective, PriorityEntry, Request, Source, TypeDefaults, resolve
from workloads.policies.rules.documents import merged_json, part_of, patched, read_document, without
from workloads.policies.rules.merge import (
    FIELDS,
    MODES,
    NOTHING,
    PREEMPTIBILITY,
    PRIORITY,
    FieldRule,
    Merged,
    PolicyKind,
    Scope,
    ScopePolicy,
    ScopeRef,
    contradiction,
    defaults_in,
    imposed,
    merge,
    violations,
)

VALUES = {PRIORITY: RUNAI.names, PREEMPTIBILITY: MODES}
TRAINING = TypeDefaults("Training", "low", Preemptibility.PREEMPTIBLE)
PLACES = {scope: ScopeRef(scope, "" if scope is Scope.TENANT else "1", "x") for scope in Scope}


def rules_of(name: str) -> st.SearchStrategy[FieldRule]:
    listed = st.lists(st.sampled_from(VALUES[name]), min_size=1, unique=True).map(tuple)
    return st.builds(FieldRule, required=st.booleans(), can_edit=st.booleans(), options=st.none() | listed)


def some(values: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({}, optional=values)


def parts(scope: Scope) -> st.SearchStrategy[ScopePolicy]:
    defaults = some({name: st.sampled_from(VALUES[name]) for name in FIELDS})
    rules = some({name: rules_of(name) for name in FIELDS})
    return st.builds(ScopePolicy, place=st.just(PLACES[scope]), defaults=defaults, rules=rules)


SCOPED = st.tuples(*(st.none() | parts(scope) for scope in Scope)).map(
    lambda found: [part for part in found if part is not None]
)
PAIRS = st.builds(
    Effective,
    priority=st.sampled_from(list(RUNAI)),
    priority_source=st.sampled_from(list(Source)),
    preemptibility=st.sampled_from(list(Preemptibility)),
    preemptibility_source=st.sampled_from(list(Source)),
)


def broken(pair: Effective, merged: Merged, untouched: Effective | None = None) -> set[tuple[str, str]]:
    return {(each.field, each.rule) for each in violations(pair, untouched, merged)}


@given(SCOPED, PAIRS, st.none() | PAIRS)
def test_a_nearer_scope_never_allows_what_a_wider_one_forbids(
    scoped: list[ScopePolicy], pair: Effective, untouched: Effective | None
) -> None:
    for count in range(len(scoped)):
        wider, all_of_them = merge(scoped[:count]), merge(scoped)
        assert broken(pair, wider, untouched) <= broken(pair, all_of_them, untouched)


@given(SCOPED, PAIRS)
def test_every_scopes_options_hold_alone_and_together(scoped: list[ScopePolicy], pair: Effective) -> None:
    alone = {("options", name) for part in scoped for name, rule in broken(pair, merge([part])) if rule == "options"}
    assert {("options", name) for name, rule in broken(pair, merge(scoped)) if rule == "options"} == alone


@given(SCOPED, st.randoms())
def test_the_order_in_which_scopes_are_read_says_nothing(scoped: list[ScopePolicy], random: object) -> None:
    shuffled = list(scoped)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' own random.Random
    assert merge(shuffled) == merge(scoped)


@given(SCOPED)
def test_the_nearest_default_counts_and_names_its_scope(scoped: list[ScopePolicy]) -> None:
    merged = merge(scoped)
    for name in FIELDS:
        saying = [part for part in scoped if name in part.defaults]
        found = merged.get(name, NOTHING)
        assert found.default == (saying[-1].defaults[name] if saying else "")
        assert found.default_of == (saying[-1].place if saying else None)


@given(SCOPED)
def test_without_a_wish_only_options_and_requirements_can_refuse(scoped: list[ScopePolicy]) -> None:
    merged = merge(scoped)
    untouched = resolve(Request(), defaults=TRAINING, dictionary=RUNAI, policy=defaults_in(merged))
    assert isinstance(untouched, Effective)
    assert "canEdit" not in {rule for _name, rule in broken(untouched, merged, untouched)}


@given(SCOPED)
def test_a_default_that_is_allowed_is_never_refused(scoped: list[ScopePolicy]) -> None:
    merged = merge(scoped)
    untouched = resolve(Request(), defaults=TRAINING, dictionary=RUNAI, policy=defaults_in(merged))
    assert isinstance(untouched, Effective)
    filled = all(merged.get(name, NOTHING).default for name in FIELDS)
    if filled and not contradiction(merged):
        assert broken(untouched, merged, untouched) == set()


@given(SCOPED)
def test_what_holds_is_a_document_of_the_same_meaning(scoped: list[ScopePolicy]) -> None:
    merged = merge(scoped)
    if any(policy.allowed == () for policy in merged.values()) or contradiction(merged):
        return
    known = {name: name for name in RUNAI.names}.get
    for kind in (PolicyKind.TRAINING, PolicyKind.DISTRIBUTED):
        document, problems = read_document(kind, merged_json(kind, merged), known)
        assert problems == []
        again = merge([part_of(kind, ScopeRef(), document, known)])
        for name in FIELDS:
            one, other = merged.get(name, NOTHING), again.get(name, NOTHING)
            assert (one.default, one.allowed) == (other.default, other.allowed)
            assert (bool(one.required_of), bool(one.locked_of)) == (bool(other.required_of), bool(other.locked_of))


def part(scope: Scope, **rules: FieldRule) -> ScopePolicy:
    return ScopePolicy(PLACES[scope], rules={PRIORITY: rules["priority"]})


@pytest.mark.parametrize(
    ("wide", "near", "allowed"),
    [
        (("low", "medium"), ("medium", "high"), ("medium",)),
        (("low",), ("high",), ()),
        (None, ("high",), ("high",)),
        (("low", "medium"), None, ("low", "medium")),
        (None, None, None),
    ],
)
def test_options_of_two_scopes_are_what_both_have(
    wide: tuple[str, ...] | None, near: tuple[str, ...] | None, allowed: tuple[str, ...] | None
) -> None:
    rules = [(Scope.TENANT, wide), (Scope.PROJECT, near)]
    merged = merge(part(scope, priority=FieldRule(options=options)) for scope, options in rules)
    assert merged.get(PRIORITY, NOTHING).allowed == allowed
    assert bool(contradiction(merged)) is (allowed == ())


def test_what_is_imposed_is_told_with_whose_it_is() -> None:
    rule = FieldRule(required=True, can_edit=False, options=("low",))
    told = list(imposed(merge([replace(part(Scope.DEPARTMENT, priority=rule), defaults={PRIORITY: "low"})])))
    assert len(told) == 4
    assert all(each.endswith("set by policy of department x.") for each in told)


def test_a_lock_without_a_value_to_keep_holds_nobody() -> None:
    merged = merge([part(Scope.TENANT, priority=FieldRule(can_edit=False))])
    pair = Effective(PriorityEntry("high", 125), Source.EXPLICIT, Preemptibility.NON_PREEMPTIBLE, Source.THRESHOLD)
    assert violations(pair, None, merged) == []


def test_a_merge_keeps_what_it_does_not_name_and_null_takes_away() -> None:
    document = {"defaults": {"priorityClass": "low"}, "rules": {"priorityClass": {"required": True, "canEdit": False}}}
    change = {"defaults": None, "rules": {"priorityClass": {"required": None}, "preemptibility": {"canEdit": False}}}
    assert patched(document, change) == {
        "rules": {"priorityClass": {"canEdit": False}, "preemptibility": {"canEdit": False}}
    }


def test_fields_are_cleared_by_their_path() -> None:
    worker = {"priorityClass": "low", "preemptibility": "preemptible"}
    document = {"defaults": {"worker": worker}, "rules": {"worker": {"priorityClass": {"required": True}}}}
    cleared, problems = without(PolicyKind.DISTRIBUTED, document, ["worker.priorityClass"])
    assert problems == []
    assert cleared["defaults"]["worker"] == {"preemptibility": "preemptible"}
    assert cleared["rules"]["worker"] == {}
    _same, problems = without(PolicyKind.TRAINING, document, ["worker.priorityClass"])
    assert [each.pointer for each in problems] == ["/reset/0"]
