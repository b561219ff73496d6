"""The addresses of logging in and out."""

from django.urls import path

from accounts import api

urlpatterns = [
    path("api/auth/token", api.TokenView.as_view(), name="token"),
    path("api/auth/refresh", api.RefreshView.as_view(), name="refresh"),
    path("api/auth/login", api.LoginView.as_view(), name="login"),
    path("api/auth/logout", api.LogoutView.as_view(), name="logout"),
]
