"""Rows of the workloads, split by topic."""

from workloads.dictionary.models import Category, Plan, PlanState, PreemptionPolicy, Priority, WorkloadType
from workloads.forecast.models import ForecastCount, ForecastResult, StoredForecast
from workloads.notifications.models import Delivery, DeliveryState, NotificationChannel, NotificationState, Subscription
from workloads.policies.models import Policy
from workloads.preemption.models import PreemptionCause, PreemptionRecord
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
    "Delivery",
    "DeliveryState",
    "DesiredPhase",
    "EventType",
    "FeedState",
    "ForecastCount",
    "ForecastResult",
    "IdempotencyKey",
    "NotificationChannel",
    "NotificationState",
    "Phase",
    "Plan",
    "PlanState",
    "Policy",
    "PreemptionCause",
    "PreemptionPolicy",
    "PreemptionRecord",
    "Priority",
    "Replay",
    "ReplayStatus",
    "Report",
    "ReportGroup",
    "ReportStatus",
    "StoredForecast",
    "Subscription",
    "TemplateKind",
    "Workload",
    "WorkloadEvent",
    "WorkloadTemplate",
    "WorkloadType",
]
