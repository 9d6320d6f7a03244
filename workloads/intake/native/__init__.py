"""Run:ai's native submission as one more door of intake: the `spec` of a workspace, training, distributed training,
inference, distributed inference or NIM service comes in, the same `WorkloadSpec` as from a manifest goes out.

`fields` is the one table of what becomes of every field; `parts` are the rules of its nested objects; `pods` and
`objects` write what the fields mean as a Kubernetes object, which then passes the same allowlist as everybody's;
`prepared` checks what is kept for later submissions. Pure.
"""

from workloads.intake.native.fields import CHANGEABLE, FIELDS, MASTER, Field
from workloads.intake.native.objects import TYPES
from workloads.intake.native.prepared import asset_fields, check_asset, check_template, lacking
from workloads.intake.native.reader import Native, native_pointer, read_count, read_native

__all__ = [
    "CHANGEABLE",
    "FIELDS",
    "MASTER",
    "TYPES",
    "Field",
    "Native",
    "asset_fields",
    "check_asset",
    "check_template",
    "lacking",
    "native_pointer",
    "read_count",
    "read_native",
]
