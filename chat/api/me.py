"""GET /api/me: who the caller is, and which agents there are."""

from __future__ import annotations

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import GatewayAuthentication
from chat.presence import online_agents


class MeView(APIView):
    """GET → {username, agents, limits}; 401 tells a browser to refresh its token, 403 to log in."""

    authentication_classes = [GatewayAuthentication]

    def get(self, request: Request) -> Response:
        """Who is calling."""
        who = request.principal
        agents = online_agents(who.user_id)
        return Response(
            {
                "username": who.username,
                "agents": [{"name": name, "online": online} for name, online in agents.items()],
                "limits": {
                    "frame_bytes": settings.HERMES_MAX_FRAME_BYTES,
                    "image_bytes": settings.HERMES_MEDIA_MAX_IMAGE_BYTES,
                    "voice_bytes": settings.HERMES_MEDIA_MAX_VOICE_BYTES,
                    "video_bytes": settings.HERMES_MEDIA_MAX_VIDEO_BYTES,
                    "file_bytes": settings.HERMES_MEDIA_MAX_FILE_BYTES,
                },
            },
            headers={"Cache-Control": "no-store"},
        )
