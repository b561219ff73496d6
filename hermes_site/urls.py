"""The HTTP routes: the apps' own, the admin, and the chat page."""

from django.contrib import admin
from django.urls import include, path

from hermes_site import pages

urlpatterns = [
    path("", pages.chat, name="chat-page"),
    path("admin/", admin.site.urls),
    path("", include("accounts.urls")),
    path("", include("media.urls")),
    path("", include("chat.urls")),
]

handler400 = "hermes_site.pages.bad_request"
handler403 = "hermes_site.pages.forbidden"
handler404 = "hermes_site.pages.not_found"
handler500 = "hermes_site.pages.server_error"
