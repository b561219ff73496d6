"""The HTTP addresses of chat."""

from django.urls import path

from chat.api.frames import FramesView
from chat.api.me import MeView

urlpatterns = [
    path("api/frames", FramesView.as_view(), name="frames"),
    path("api/me", MeView.as_view(), name="me"),
]
