"""The form of a policy, and of the question what holds for a project."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from django import forms
from django.db.models import CharField, QuerySet, Value
from django.db.models.functions import Concat
from django.utils.translation import gettext_lazy as _

from portal.kit.errors import NotFound
from portal.kit.pages.forms import Offer, PageForm, SearchField
from tenants.access.forms import department_offer, project_offer
from tenants.organisation.models import Project
from workloads.dictionary.models import Priority
from workloads.policies.models import Owner, Policy
from workloads.policies.rules.documents import WORKER, Document, flat, part_of
from workloads.policies.rules.merge import FIELDS, MODES, PREEMPTIBILITY, PRIORITY, FieldRule, PolicyKind, ScopeRef
from workloads.policies.selectors import ManageableScopes, known_priorities

KINDS: Final[Mapping[PolicyKind, Any]] = {
    PolicyKind.WORKSPACE: _("Workspace"),
    PolicyKind.TRAINING: _("Training"),
    PolicyKind.DISTRIBUTED: _("Distributed training"),
    PolicyKind.INFERENCE: _("Inference, Hugging Face inference"),
    PolicyKind.DISTRIBUTED_INFERENCE: _("Distributed inference"),
    PolicyKind.NIM_SERVICE: _("NVIDIA NIM inference"),
}
Choices = Sequence[tuple[str, Any]]


def _select(label: Any, choices: Choices, **more: Any) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, choices=choices, **more)


class ScopeField(SearchField):
    """A scope that the reader may manage."""

    def offer_scopes(self, scopes: ManageableScopes) -> None:
        """The widest first."""
        self.offer(
            Offer(scopes.clusters, Concat(Value("cluster "), "name", output_field=CharField())),
            department_offer(scopes.departments),
            project_offer(scopes.projects),
            words=[ScopeRef().words] if scopes.installation else [],
        )

    def owner_of(self, words: str) -> Owner:
        """The row that was chosen; None for the installation. Absent where it is gone meanwhile."""
        found: Owner = None if words in self.words else self.row_of(words)
        if found is None and words not in self.words:
            raise NotFound
        return found


class EffectiveForm(PageForm):
    """For which project the effective policy is shown."""

    project = SearchField(label=_("Project"), required=False)

    def __init__(self, *args: Any, projects: QuerySet[Project], **kwargs: Any) -> None:
        super().__init__(*args, auto_id="policy-%s", **kwargs)
        self._field = cast("SearchField", self.fields["project"])
        self._field.offer(Offer(projects.select_related("cluster", "department")), size="sm")

    @property
    def chosen(self) -> Project | None:
        """The named project, else the first; None where the name is unknown."""
        name = self.cleaned_data["project"] if self.is_valid() else None
        if self.is_bound and name is None:
            return None
        first = name or next(iter(self._field.matching("", 1)), "")
        return self._field.row_of(first)


class PolicyForm(PageForm):
    """Defaults and rules of one policy. Its bounds are the service's to judge."""

    kind = _select(_("For"), [(str(kind), title) for kind, title in KINDS.items()])
    place = ScopeField(
        label=_("Where"),
        help_text=_("Applies to this scope and everything below it. Narrower scopes can only add restrictions."),
    )
    name = forms.CharField(label=_("Name"), max_length=100)
    priority_default = _select(_("Default priority"), [], required=False)
    priority_options = forms.MultipleChoiceField(
        label=_("Allowed priorities"),
        help_text=_("Leave empty to allow all."),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    priority_required = forms.BooleanField(label=_("Priority is required"), required=False)
    priority_locked = forms.BooleanField(label=_("Lock priority"), required=False)
    preemptibility_default = _select(
        _("Default preemptibility"),
        [("", _("type default, else by priority")), *((each, each) for each in MODES)],
        required=False,
    )
    preemptibility_options = forms.MultipleChoiceField(
        label=_("Allowed preemptibilities"),
        choices=[(each, each) for each in MODES],
        help_text=_("Leave empty to allow all. Semi-preemptible needs both."),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    preemptibility_required = forms.BooleanField(label=_("Preemptibility is required"), required=False)
    preemptibility_locked = forms.BooleanField(label=_("Lock preemptibility"), required=False)

    WORDS: Final = {PRIORITY: "priority", PREEMPTIBILITY: "preemptibility"}

    def __init__(
        self, *args: Any, scopes: ManageableScopes | None = None, old: Policy | None = None, **kwargs: Any
    ) -> None:
        initial = self.of(old) if old else {}
        super().__init__(*args, initial=initial, **kwargs)
        offered = Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True).order_by("-value")
        priorities = [(each.name, f"{each.name} {each.value}") for each in offered]
        named = {initial.get("priority_default"), *initial.get("priority_options", ())} - {None, "", *dict(priorities)}
        priorities += [(each, _("%(name)s, no longer offered") % {"name": each}) for each in sorted(named)]
        self._shown = _shown_in(old) if old else {}
        if scopes is not None:
            self._place.offer_scopes(scopes)
        self._choices("priority_default", [("", _("the type's default")), *priorities])
        self._choices("priority_options", priorities)
        if old is not None:
            del self.fields["kind"], self.fields["place"]

    def _choices(self, name: str, choices: Choices) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - declared above
        field.choices = choices

    @property
    def _place(self) -> ScopeField:
        return cast("ScopeField", self.fields["place"])

    @property
    def owner(self) -> Owner:
        """Whose policy it is to be; None: the installation's."""
        return self._place.owner_of(self.cleaned_data["place"])

    @classmethod
    def of(cls, row: Policy) -> dict[str, Any]:
        """What the fields hold for a policy that is there."""
        found: dict[str, Any] = {"name": row.name}
        part = part_of(PolicyKind(row.kind), ScopeRef(), row.document, known_priorities())
        for name, word in cls.WORDS.items():
            rule = part.rules.get(name, FieldRule())
            found |= {
                f"{word}_default": part.defaults.get(name, ""),
                f"{word}_options": list(rule.options or ()),
                f"{word}_required": rule.required,
                f"{word}_locked": not rule.can_edit,
            }
        return found

    def document(self, kind: PolicyKind) -> Document:
        """What was chosen, in Run:ai's shape."""
        given = self.cleaned_data
        defaults = {name: given[f"{self.WORDS[name]}_default"] for name in FIELDS}
        rules = {name: self._rule(self.WORDS[name]) for name in FIELDS}
        parts = {"defaults": defaults, "rules": rules}
        filled = {part: {name: value for name, value in values.items() if value} for part, values in parts.items()}
        return {part: {WORKER: values} for part, values in filled.items()} if kind is PolicyKind.DISTRIBUTED else filled

    def _rule(self, word: str) -> Document:
        given = self.cleaned_data
        rule: Document = {}
        if chosen := given[f"{word}_options"]:
            rule["options"] = [self._shown.get(value, {}) | {"value": value} for value in chosen]
        if given[f"{word}_required"]:
            rule["required"] = True
        if given[f"{word}_locked"]:
            rule["canEdit"] = False
        return rule


def _shown_in(row: Policy) -> dict[str, Document]:
    """Options as they are kept, with the texts that clients show for them; by the dictionary's own names."""
    known = known_priorities()
    rules = flat(PolicyKind(row.kind), row.document.get("rules", {})).values()
    return {known(each["value"]) or each["value"]: each for rule in rules for each in rule.get("options", ())}


POINTERS: Final[Mapping[str, str]] = {
    "/meta/name": "name",
    **{
        f"/policy/defaults/{side}{name}": f"{word}_default"
        for side in ("", f"{WORKER}/")
        for name, word in PolicyForm.WORDS.items()
    },
}
"""Where a refused part of the document was chosen."""
