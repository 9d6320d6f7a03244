"""Rows of the workloads, split by topic."""

from workloads.detectors.models import DetectorRun, Finding
from workloads.dictionary.models import Category, PreemptionPolicy, Priority, WorkloadType
from workloads.forecast.models import (
    ComputedStarts,
    ForecastCount,
    ForecastResult,
    StoredForecast,
    StoredStartEstimate,
)
from workloads.notifications.models import (
    Delivery,
    DeliveryState,
    Notice,
    NotificationChannel,
    NotificationState,
    Subscription,
)
from workloads.plans.models import Plan, PlanApproval, PlanScope, PlanState
from workloads.policies.models import Policy
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.quota_requests.models import QuotaRequest, QuotaRequestState
from workloads.replay.models import Replay, ReplayStatus
from workloads.reports.models import Report, ReportGroup, ReportStatus
from workloads.state.models import (
    DesiredPhase,
    EventType,
    FeedState,
    IdempotencyKey,
    Phase,
    Workload,
    WorkloadEvent,
)
from workloads.workload_templates.models import Asset, AssetKind, TemplateKind, WorkloadTemplate

__all__ = [
    "Asset",
    "AssetKind",
    "Category",
    "ComputedStarts",
    "Delivery",
    "DeliveryState",
    "DesiredPhase",
    "DetectorRun",
    "EventType",
    "FeedState",
    "Finding",
    "ForecastCount",
    "ForecastResult",
    "IdempotencyKey",
    "Notice",
    "NotificationChannel",
    "NotificationState",
    "Phase",
    "Plan",
    "PlanApproval",
    "PlanScope",
    "PlanState",
    "Policy",
    "PreemptionCause",
    "PreemptionPolicy",
    "PreemptionRecord",
    "Priority",
    "QuotaRequest",
    "QuotaRequestState",
    "Replay",
    "ReplayStatus",
    "Report",
    "ReportGroup",
    "ReportStatus",
    "StoredForecast",
    "StoredStartEstimate",
    "Subscription",
    "TemplateKind",
    "Workload",
    "WorkloadEvent",
    "WorkloadTemplate",
    "WorkloadType",
]
