"""The portal's routes and the peer's."""

from django.urls import include, path
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer
from rest_framework.routers import SimpleRouter
from rest_framework.serializers import ModelSerializer
from rest_framework.viewsets import ModelViewSet

from benchmarks.bare.models import Thing


class ThingSerializer(ModelSerializer[Thing]):
    """Every field, as the tutorial has it."""

    class Meta:
        model = Thing
        fields = "__all__"


class Things(ModelViewSet[Thing]):
    """Stock parser, renderer and create; authentication is the portal's."""

    queryset = Thing.objects.all()
    serializer_class = ThingSerializer
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]


router = SimpleRouter()
router.register("bare", Things)
urlpatterns = [*router.urls, path("", include("portal.urls"))]
