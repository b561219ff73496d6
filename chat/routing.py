"""The addresses of the two chat sockets."""

from django.urls import path

from chat.agent_consumer import AgentConsumer
from chat.app_consumer import AppConsumer

websocket_urlpatterns = [
    path("ws/app", AppConsumer.as_asgi()),
    path("ws/agent", AgentConsumer.as_asgi()),
]
