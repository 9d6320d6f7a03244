"""Older versions in the console: amounts stand there with their units, not as the numbers of the columns."""

from typing import Any

from django.utils.translation import gettext as _
from simple_history.template_utils import HistoricalRecordContextHelper

from tenants.quotas.services.quota_values import DIMENSIONS, amount_text

BOUNDS = {f"{dimension}_{kind}": dimension for dimension in DIMENSIONS for kind in ("deserved", "limit")}


class FormattedAmountsHistory(HistoricalRecordContextHelper):
    """What changed between two versions."""

    def prepare_delta_change_value(self, change: Any, value: Any) -> Any:
        """32000 thousandths are 32 GPUs; nothing is no limit, or not counted."""
        if change.field not in BOUNDS:
            return super().prepare_delta_change_value(change, value)
        if value is None:
            return _("unlimited") if change.field.endswith("limit") else _("not counted")
        return amount_text(BOUNDS[change.field], value)
