"""The HTTP addresses of chat: the log, who the caller is, and the second door."""

from django.urls import path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from chat.api import history, runs, sessions, subscription
from chat.api.frames import FramesView
from chat.api.me import MeView

HERMES = "api/hermes"

urlpatterns = [
    path("api/frames", FramesView.as_view(), name="frames"),
    path("api/schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("api/docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    path("api/me", MeView.as_view(), name="me"),
    path(f"{HERMES}/api/sessions", sessions.collection, name="sessions"),
    path(f"{HERMES}/api/sessions/<str:session>", sessions.member, name="session"),
    path(f"{HERMES}/api/sessions/<str:session>/fork", sessions.forking_address, name="fork"),
    path(f"{HERMES}/api/sessions/<str:session>/messages", history.address, name="history"),
    path(f"{HERMES}/api/sessions/<str:session>/chat/stream", runs.beginning, name="run"),
    path(f"{HERMES}/api/sessions/<str:session>/events", subscription.address, name="session-events"),
    path(f"{HERMES}/v1/runs/<str:run>", runs.address, name="run-status"),
    path(f"{HERMES}/v1/runs/<str:run>/events", runs.following, name="run-events"),
    path(f"{HERMES}/v1/runs/<str:run>/stop", runs.stopping, name="run-stop"),
    path(f"{HERMES}/v1/runs/<str:run>/steer", runs.steering, name="run-steer"),
]
