"""How a kind of manifest describes its pods, and the walk that finds them. Standard library only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeGuard

Manifest = Mapping[str, Any]


class TemplateShape(StrEnum):
    """How the object at a path describes its pods."""

    TEMPLATE = "template"  # {metadata, spec: PodSpec}
    POD = "pod"  # a PodSpec itself, with the owner's own fields beside it
    CONTAINER = "container"  # image, env and resources of the only container
    STEPS = "steps"  # containers under "steps", one pod for all of them
    STEP = "step"  # one container under "container" or "script"
    DEVFILE = "devfile"  # components with a container each, one pod
    MACHINE = "machine"  # a virtual machine: domain resources and passed-through GPUs


class OnChange(StrEnum):
    """What happens when pods are to be described otherwise while some of them run: what another priority needs."""

    RECREATE = "recreate"  # the API server never changes the template: the object is recreated once no pod of it runs
    RESTART = "restart"  # its controller would restart every pod at once: written once no pod of it runs
    NEW_PODS = "new-pods"  # written at once: pods that are there stay, pods created later have it
    NEXT_RUN = "next-run"  # written at once: the run that is under way stays, the next one has it


@dataclass(frozen=True, slots=True)
class TemplatePath:
    """Where pods are described; '*' matches every key or item.

    `replicas` are relative pointers, from the described object, to counts that are multiplied (absent counts as one);
    `less_with` names a sibling that takes one off the last count. Role '*' is the name of the last '*'.
    """

    path: str
    replicas: tuple[str, ...] = ()
    role: str = "*"
    shape: TemplateShape = TemplateShape.TEMPLATE
    less_with: str = ""


class FoundPart(NamedTuple):
    """One place of one manifest that describes pods, with its shape."""

    pointer: str
    part: Mapping[str, Any]
    replicas: int
    role: str
    shape: TemplateShape


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """One manifest type: `name` is Run:ai's type name, `versions` the accepted ones with the preferred first.

    `suspend` points to the boolean that holds it back; `gang`: its pods start together, except the roles in `later`, or
    as many as stand at `minimum`; `priority` are places of a priority class beside the pod templates; `on_change` is
    what becomes of running pods when templates are to change.
    """

    name: str
    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    paths: tuple[TemplatePath, ...]
    suspend: str | None = None
    gang: bool = False
    priority: tuple[str, ...] = ()
    minimum: str = ""
    later: tuple[str, ...] = ()
    on_change: OnChange = OnChange.RECREATE
    api_versions: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "api_versions", tuple(join_version(self.group, each) for each in self.versions))

    @property
    def api_version(self) -> str:
        """The preferred apiVersion, as a manifest writes it."""
        return self.api_versions[0]

    @property
    def core(self) -> bool:
        """Served by every API server, without a CustomResourceDefinition."""
        return self.group in {"", "apps", "batch"}

    @property
    def templates(self) -> tuple[TemplatePath, ...]:
        """Only the paths that hold a real pod template."""
        return tuple(each for each in self.paths if each.shape is TemplateShape.TEMPLATE)

    def minimum_of(self, manifest: Manifest) -> int:
        """How many pods a manifest itself wants together; 0 when it does not say."""
        found = relative(manifest, (), self.minimum[1:]) if self.minimum else None
        return found if isinstance(found, int) else 0


def join_version(group: str, version: str) -> str:
    """`group/version`, or the bare version of the core group."""
    return f"{group}/{version}" if group else version


def parts_in(manifest: Manifest, kind: WorkloadKind) -> list[FoundPart]:
    """Every place of a manifest that describes pods, whatever its shape."""
    return [found for path in kind.paths for found in _parts(manifest, path)]


def gang_templates(manifest: Manifest, kind: WorkloadKind) -> list[FoundPart]:
    """The pod templates of a gang: all but those of roles that start later; none where the kind is no gang."""
    paths = kind.templates if kind.gang else ()
    return [found for path in paths for found in _parts(manifest, path) if found.role not in kind.later]


def _parts(manifest: Manifest, path: TemplatePath) -> Iterator[FoundPart]:
    tokens = tuple(path.path.split("/")[1:])
    for trail, part, name in _walk(manifest, tokens, (), ""):
        if _is_object(part):
            role = name if path.role == "*" else path.role
            yield FoundPart(_pointer(trail), part, _count(manifest, trail, path), role, path.shape)


def _walk(
    node: Any, tokens: tuple[str, ...], trail: tuple[str, ...], name: str
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    if not tokens:
        yield trail, node, name
        return
    step, rest = tokens[0], tokens[1:]
    for key, child, label in _children(node, step, name):
        yield from _walk(child, rest, (*trail, key), label)


def _children(node: Any, step: str, name: str) -> Iterator[tuple[str, Any, str]]:
    if _is_object(node):
        for key in node if step == "*" else (step,):
            if key in node:
                yield str(key), node[key], str(key) if step == "*" else name
    elif step == "*" and isinstance(node, Sequence) and not isinstance(node, str):
        for index, item in enumerate(node):
            yield str(index), item, _item_name(item) or name or str(index)


def _is_object(node: Any) -> TypeGuard[Mapping[str, Any]]:
    """Asking an abstract class costs ten times as much as asking for the class that nearly every object is of."""
    return type(node) is dict or isinstance(node, Mapping)


def _item_name(item: Any) -> str:
    if not isinstance(item, Mapping):
        return ""
    return str(item.get("name") or item.get("groupName") or "")


def _pointer(trail: tuple[str, ...]) -> str:
    return "".join(f"/{token.replace('~', '~0').replace('/', '~1')}" for token in trail)


def _count(manifest: Manifest, trail: tuple[str, ...], path: TemplatePath) -> int:
    counts = [_number(relative(manifest, trail, each)) for each in path.replicas] or [1]
    if path.less_with and relative(manifest, trail, path.less_with) is not None:
        counts[-1] -= 1
    total = 1
    for each in counts:
        total *= each
    return total


def relative(manifest: Manifest, trail: tuple[str, ...], path: str) -> Any:
    """The value at a relative pointer; '..' leaves the place the trail names. None when nothing does."""
    place = list(trail)
    for step in path.split("/"):
        if step == "..":
            place.pop()
        else:
            place.append(step.replace("~1", "/").replace("~0", "~"))
    node: Any = manifest
    for token in place:
        if _is_object(node):
            node = node.get(token)
        elif isinstance(node, Sequence) and not isinstance(node, str) and token.isdecimal() and int(token) < len(node):
            node = node[int(token)]
        else:
            return None
    return node


def _number(value: Any) -> int:
    """A replica count as written: an integer, or its digits; anything else counts as one."""
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        return int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 1


SCHEDULING_LABELS = frozenset(
    {
        "priorityClassName",
        "ray.io/priority-class-name",
        "kai.scheduler/queue",
        "kai.scheduler/node-pool",
        "kai.scheduler/preemptibility",
        "kueue.x-k8s.io/queue-name",
        "kueue.x-k8s.io/priority-class",
    }
)
SCHEDULING_ANNOTATIONS = frozenset({"scheduling.volcano.sh/queue-name", "volcano.sh/preemptable"})
POD_FIELDS = ("schedulerName", "priorityClassName")
DEFAULT_SCHEDULER = "default-scheduler"
MOST_FIELDS = 100


def scheduling_fields(manifest: Manifest, kind: WorkloadKind) -> dict[str, str | bool]:
    """What decides in which queue, by which scheduler and how strongly its pods are scheduled, by JSON pointer.

    Queue, priority class and preemptibility at the object and in each pod template, scheduler and priority class of the
    pods, and whether it is suspended. What is absent, or says the API server's default, is left out; so is a text of
    more than 253 characters. At most 100.
    """
    found = {**_marked(manifest, ""), **_at(manifest, kind.priority)}
    if kind.suspend:
        found |= _at(manifest, (kind.suspend,))
    for part in parts_in(manifest, kind):
        if part.shape is TemplateShape.TEMPLATE:
            found |= {**_marked(part.part, part.pointer), **_of_pod(part.part.get("spec"), f"{part.pointer}/spec")}
        elif part.shape is TemplateShape.POD:
            found |= _of_pod(part.part, part.pointer)
        if len(found) >= MOST_FIELDS:
            break
    return dict(list(found.items())[:MOST_FIELDS])


def _marked(described: Mapping[str, Any], pointer: str) -> dict[str, str | bool]:
    metadata = described.get("metadata")
    if not _is_object(metadata):
        return {}
    found: dict[str, str | bool] = {}
    for part, names in (("labels", SCHEDULING_LABELS), ("annotations", SCHEDULING_ANNOTATIONS)):
        held = metadata.get(part)
        if _is_object(held):
            given = {name: held[name] for name in sorted(names & held.keys()) if _says(held[name])}
            found |= {f"{pointer}/metadata/{part}{_pointer((name,))}": value for name, value in given.items()}
    return found


def _of_pod(spec: object, pointer: str) -> dict[str, str | bool]:
    if not _is_object(spec):
        return {}
    given = {name: spec.get(name) for name in POD_FIELDS}
    return {f"{pointer}/{name}": value for name, value in given.items() if _says(value) and value != DEFAULT_SCHEDULER}


def _at(manifest: Manifest, pointers: Sequence[str]) -> dict[str, str | bool]:
    given = {pointer: relative(manifest, (), pointer[1:]) for pointer in pointers}
    return {pointer: value for pointer, value in given.items() if _says(value)}


def _says(value: object) -> TypeGuard[str | bool]:
    return isinstance(value, bool) or (isinstance(value, str) and 0 < len(value) <= 253 and value.isprintable())
