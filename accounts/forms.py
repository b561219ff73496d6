"""The admin's forms: names as they are typed, keys without their secret."""

import uuid
from typing import Any

from django import forms
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AdminUserCreationForm
from django.contrib.auth.forms import UserChangeForm as DjangoUserChangeForm
from django.utils import timezone

from accounts import scopes
from accounts.models import DEFAULT_AGENT, ApiKey, User


class LoginForm(AdminAuthenticationForm):
    """The admin's login; unlike Django's it does not rewrite the name to another spelling of it."""

    username = forms.CharField(max_length=150, widget=forms.TextInput(attrs={"autofocus": True}))


class UserAddForm(AdminUserCreationForm):
    """A new user, under the very name that was typed."""

    class Meta:
        """Only what is needed."""

        model = User
        fields = ("username",)
        field_classes: dict[str, type[forms.Field]] = {}

    def clean_username(self) -> str:
        """The model's own check of uniqueness is enough: names that differ in case are two users."""
        return self.cleaned_data["username"]


class UserChangeForm(DjangoUserChangeForm):
    """A user's page."""

    class Meta:
        """Everything that the admin shows."""

        model = User
        fields = "__all__"
        field_classes: dict[str, type[forms.Field]] = {}


class KeyForm(forms.ModelForm):
    """What is said about a key when it is issued; afterwards only its label can change."""

    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in scopes.ALL],
        initial=list(scopes.DEFAULT),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="agent: its own socket. media: files it uploaded or was sent. chat: acts as the user's App.",
    )
    form_id = forms.UUIDField(widget=forms.HiddenInput, required=False)

    class Meta:
        """Nothing secret is a field."""

        model = ApiKey
        fields = ("user", "agent", "label", "scopes", "expires_at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Each form that is shown can issue one key."""
        super().__init__(*args, **kwargs)
        if "agent" in self.fields:
            self.fields["agent"].required = False
        if "form_id" in self.fields:
            self.fields["form_id"].initial = uuid.uuid4

    def clean_agent(self) -> str:
        """Without a name it is the default one."""
        return self.cleaned_data["agent"] or DEFAULT_AGENT

    def clean_scopes(self) -> str:
        """The stored form; none chosen means the default ones."""
        return scopes.join(tuple(self.cleaned_data["scopes"]) or scopes.DEFAULT)

    def clean_expires_at(self) -> Any:
        """A key that has expired already helps nobody."""
        expires_at = self.cleaned_data["expires_at"]
        if expires_at is not None and expires_at <= timezone.now():
            raise forms.ValidationError("This time is past.")
        return expires_at

    def clean_form_id(self) -> uuid.UUID | None:
        """A form sent again (reload, back) issues no second key."""
        form_id: uuid.UUID | None = self.cleaned_data["form_id"]
        if form_id is not None and ApiKey.objects.filter(issue=form_id).exists():
            raise forms.ValidationError(
                "This form has issued its key already. The key was shown once and cannot be shown again."
            )
        return form_id
