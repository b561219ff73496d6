"""Puts the parts together: settings, the ASGI application, what all of the apps share."""
