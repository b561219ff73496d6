"""The routes of media. Nothing is served by its place in the storage: all that follows /media/ is taken for an id."""

from django.urls import path

from media import api

urlpatterns = [
    path("api/media/upload", api.UploadView.as_view(), name="media-upload"),
    path("media/<path:media_id>", api.download, name="media-download"),
]
