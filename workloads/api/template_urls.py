"""REST routes of templates and assets."""

from django.urls import path, register_converter

from workloads.api import assets, templates

register_converter(templates.TemplateKindWord, "template")
register_converter(templates.ChangeableKindWord, "changeable")
register_converter(assets.AssetKindWord, "asset")

urlpatterns = [
    path("v1/workload-templates", templates.Templates.as_view()),
    path("v1/workload-templates/count", templates.TemplateCount.as_view()),
    path("v1/workload-templates/name-availability", templates.TemplateNames.as_view()),
    path("v1/workload-templates/<template:kind>", templates.TemplatesOfKind.as_view()),
    path("v1/workload-templates/<uuid:template_id>", templates.AnyTemplate.as_view()),
    path("v1/workload-templates/<changeable:kind>/<uuid:template_id>", templates.OneTemplate.as_view()),
    path("v1/workload-templates/inferences/<uuid:inference_template_id>", templates.OneInferenceTemplate.as_view()),
    path("v1/asset/<asset:kind>", assets.Assets.as_view()),
    path("v1/asset/<asset:kind>/<uuid:asset_id>", assets.OneAsset.as_view()),
]
