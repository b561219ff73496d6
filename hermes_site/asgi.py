"""The ASGI application: http to Django, the chat sockets to their consumers, everything after start-up."""

import os

from hermes_site import sqlite

sqlite.install()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes_site.settings")

from django.core.asgi import get_asgi_application  # noqa: E402  (SQLite and the settings come first)

django_application = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402  (the apps are loaded now)
from django.urls import re_path  # noqa: E402

from accounts.middleware import CredentialMiddleware, refuse_unknown_path  # noqa: E402
from chat.routing import websocket_urlpatterns  # noqa: E402
from hermes_site import lifecycle  # noqa: E402
from hermes_site.gate import Gate  # noqa: E402
from hermes_site.serving import plain  # noqa: E402

plain.hide_queries()
plain.warn_of_slow_frames()
sockets = URLRouter([*websocket_urlpatterns, re_path(r"", refuse_unknown_path)])
application = lifecycle.after_startup(
    ProtocolTypeRouter({"http": Gate(django_application), "websocket": CredentialMiddleware(sockets)})
)
