"""
Every setting: its name, its default, the environment variable that changes it (the same name), its meaning.

Units are in the names: seconds (fractions allowed), bytes, everything else a count. docs/settings.md says the same for
operators, and a test holds the two together.
"""

import os
import re
import secrets
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from hermes_site import sqlite

sqlite.install()  # whoever loads the settings has not loaded Django's backend yet
BASE_DIR = Path(__file__).resolve().parent.parent
KIB, MIB = 1024, 1024 * 1024


def text(name: str, default: str = "") -> str:
    """The variable as it is, without surrounding space."""
    return os.environ.get(name, default).strip()


def words(name: str) -> list[str]:
    """A comma list."""
    return [word.strip() for word in text(name).split(",") if word.strip()]


def switch(name: str, default: bool) -> bool:
    """1, true, yes, on against everything else."""
    return text(name, str(int(default))).lower() in {"1", "true", "yes", "on"}


def count(name: str, default: int) -> int:
    """A whole number, 0 or more."""
    try:
        value = int(text(name) or default)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is not a whole number") from None
    if value < 0:
        raise ImproperlyConfigured(f"{name} is negative")
    return value


def seconds(name: str, default: float) -> float:
    """A time in seconds, 0 or more."""
    try:
        value = float(text(name) or default)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is not a number of seconds") from None
    if not 0 <= value < float("inf"):
        raise ImproperlyConfigured(f"{name} is not a time")
    return value


# A setting and its meaning stay on one line.
# fmt: off

# --- Where it runs -------------------------------------------------------------------------------------------------
DEBUG = switch("DEBUG", False)  # development: error pages, a secret key of its own making, demo data allowed
HERMES_DATA_DIR = text("HERMES_DATA_DIR") or str(BASE_DIR / "var")  # database, media, logs of the embedded default
DATA_DIR = Path(HERMES_DATA_DIR)
DATA_DIR.mkdir(parents=True, exist_ok=True)
HERMES_PUBLIC_URL = text("HERMES_PUBLIC_URL").rstrip("/")  # what people type; https brings redirects, secure cookies
HERMES_TRUSTED_PROXIES = words("HERMES_TRUSTED_PROXIES")  # addresses whose X-Forwarded-For and -Proto are believed
HERMES_PROCESSES = count("HERMES_PROCESSES", 1)  # processes that serve together; `serve --processes` sets it
HERMES_LOG_LEVEL = text("HERMES_LOG_LEVEL") or "INFO"  # of our own log lines
HERMES_LOG_FILE = text("HERMES_LOG_FILE")  # log lines also go here; "" means to stderr alone


def kept_secret(path: Path) -> str:
    """The secret key of a development installation: made once, readable by its owner alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(48))
    return path.read_text().strip()


SECRET_KEY = text("SECRET_KEY")
if not SECRET_KEY:
    if not DEBUG:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set (with DEBUG=1 one is made and kept in the data folder)"
        )
    SECRET_KEY = kept_secret(DATA_DIR / "secret_key")

public = urlsplit(HERMES_PUBLIC_URL)
public_origin = [f"{public.scheme}://{public.netloc}"] if public.scheme and public.netloc else []
ALLOWED_HOSTS = words("ALLOWED_HOSTS") + ([public.hostname] if public.hostname else [])
if DEBUG:
    ALLOWED_HOSTS += ["localhost", "127.0.0.1", "[::1]"]
CSRF_TRUSTED_ORIGINS = words("CSRF_TRUSTED_ORIGINS") + public_origin
HERMES_CORS_ORIGINS = words("HERMES_CORS_ORIGINS")  # other origins whose pages may call with the cookie
HTTPS = public.scheme == "https"
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz)$"]  # asked by machines inside, over plain HTTP
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")  # removed from requests of anyone but a trusted proxy
SECURE_HSTS_SECONDS = count("SECURE_HSTS_SECONDS", 0)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True

# --- Django --------------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "daphne",  # first: its runserver takes the place of Django's
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "hermes_site",
    "accounts",
    "media",
    "chat",
]
MIDDLEWARE = [
    "hermes_site.health.health",
    "hermes_site.middleware.proxy_headers",
    "hermes_site.cors.cors",
    "hermes_site.middleware.gateway_errors",
    "django.middleware.security.SecurityMiddleware",
    "hermes_site.static.StaticFiles",
    "hermes_site.middleware.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "hermes_site.urls"
ASGI_APPLICATION = "hermes_site.asgi.application"
APPEND_SLASH = False  # a POST is never redirected; the admin adds its own slashes
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
TIME_ZONE = text("TIME_ZONE") or "UTC"  # of the admin; the wire is Unix seconds
USE_TZ = True
USE_I18N = True
WHITENOISE_ALLOW_ALL_ORIGINS = False
STATIC_URL = "/static/"
STATIC_ROOT = text("STATIC_ROOT") or str(DATA_DIR / "static")
MEDIA_ROOT = str(DATA_DIR / "media")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "media": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": MEDIA_ROOT}},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}

# --- Database ------------------------------------------------------------------------------------------------------
HERMES_DATABASE_WAIT_SECONDS = seconds("HERMES_DATABASE_WAIT_SECONDS", 20)  # for SQLite's one writer
HERMES_LOCK_TIMEOUT_SECONDS = seconds("HERMES_LOCK_TIMEOUT_SECONDS", 2)  # for a row lock of PostgreSQL, in the journal
DATABASES = {
    "default": dj_database_url.config(default=f"sqlite:///{DATA_DIR / 'db.sqlite3'}", conn_max_age=0),
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "timeout": HERMES_DATABASE_WAIT_SECONDS,
        "transaction_mode": "IMMEDIATE",
        "init_command": f"PRAGMA journal_mode={sqlite.journal_mode()}; PRAGMA synchronous=FULL;",
    }
    DATABASES["default"]["TEST"] = {
        "NAME": str(DATA_DIR / "test.sqlite3")
    }  # a file: threads share it as in life

# --- Channel layer -------------------------------------------------------------------------------------------------
REDIS_URL = text("REDIS_URL")
HERMES_LAYER_PREFIX = text("HERMES_LAYER_PREFIX") or "hermes"  # of Redis channels; one per installation
if REDIS_URL:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [REDIS_URL], "prefix": HERMES_LAYER_PREFIX},
        }
    }
else:
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

# --- Who may come in -----------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["accounts.backends.ThrottledBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "admin:login"
HERMES_JWT_KEY = text("HERMES_JWT_KEY")  # signs the tokens; "" means SECRET_KEY does
HERMES_ACCESS_SECONDS = seconds("HERMES_ACCESS_SECONDS", 3600)  # life of an access token
HERMES_REFRESH_SECONDS = seconds("HERMES_REFRESH_SECONDS", 30 * 86400)  # life of a refresh token
HERMES_REFRESH_REPEAT_SECONDS = seconds("HERMES_REFRESH_REPEAT_SECONDS", 30)  # a used one gets the same answer
HERMES_TOKEN_LEEWAY_SECONDS = seconds("HERMES_TOKEN_LEEWAY_SECONDS", 5)  # for iat and nbf, never for exp
HERMES_CREDENTIAL_CHECK_SECONDS = seconds("HERMES_CREDENTIAL_CHECK_SECONDS", 1)  # between looks at live credentials
HERMES_CREDENTIAL_BYTES = count("HERMES_CREDENTIAL_BYTES", 8 * KIB)  # longest query or credential of a socket
HERMES_AUTH_THREADS = count("HERMES_AUTH_THREADS", 4)  # threads for look-ups of users and keys
HERMES_READ_THREADS = count("HERMES_READ_THREADS", 4)  # threads for replays, history and other reads of chat
HERMES_KEY_SEEN_SECONDS = seconds("HERMES_KEY_SEEN_SECONDS", 60)  # a key's last use is written no oftener
HERMES_LOGIN_TRIES = count("HERMES_LOGIN_TRIES", 10)  # wrong passwords in a row for one account
HERMES_LOGIN_ADDRESS_TRIES = count("HERMES_LOGIN_ADDRESS_TRIES", 20)  # the same from one address
HERMES_LOGIN_REFILL_SECONDS = seconds("HERMES_LOGIN_REFILL_SECONDS", 20)  # then one more in each such time
HERMES_APP_SOCKETS = count("HERMES_APP_SOCKETS", 16)  # App sockets of one user
HERMES_TAKEOVER_LIMIT = count("HERMES_TAKEOVER_LIMIT", 3)  # takeovers of one agent name …
HERMES_TAKEOVER_SECONDS = seconds("HERMES_TAKEOVER_SECONDS", 60)  # … within this time, then 429 for as long
SIMPLE_JWT = {
    "ALGORITHM": "HS256",
    "SIGNING_KEY": HERMES_JWT_KEY or SECRET_KEY,
    "ACCESS_TOKEN_LIFETIME": timedelta(seconds=HERMES_ACCESS_SECONDS),
    "REFRESH_TOKEN_LIFETIME": timedelta(seconds=HERMES_REFRESH_SECONDS),
    "LEEWAY": HERMES_TOKEN_LEEWAY_SECONDS,
    "USER_ID_FIELD": "username",
    "USER_ID_CLAIM": "sub",
}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["accounts.authentication.GatewayAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "hermes_site.rest.JsonAlways",
    "EXCEPTION_HANDLER": "hermes_site.rest.drf_errors",
    "UNAUTHENTICATED_USER": None,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Hermes Chat",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "PREPROCESSING_HOOKS": ["chat.api.schema.nothing"],
    "POSTPROCESSING_HOOKS": ["chat.api.schema.describe"],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "",
}

# --- Frames and streams --------------------------------------------------------------------------------------------
HERMES_MAX_FRAME_BYTES = count("HERMES_MAX_FRAME_BYTES", MIB)  # one WebSocket message; above it close 1009
HERMES_DATA_BYTES = count("HERMES_DATA_BYTES", 64 * KIB)  # `data` of a frame beside its text
HERMES_BAD_FRAMES = count("HERMES_BAD_FRAMES", 20)  # in a row, then close 4008
HERMES_HEARTBEAT_SECONDS = seconds("HERMES_HEARTBEAT_SECONDS", 90)  # silence after which a peer is closed, 4408
HERMES_STREAM_BYTES = count("HERMES_STREAM_BYTES", 8 * MIB)  # text of one stream
HERMES_OPEN_STREAMS = count("HERMES_OPEN_STREAMS", 64)  # open at once per agent connection
HERMES_STREAM_GRACE_SECONDS = seconds("HERMES_STREAM_GRACE_SECONDS", 30)  # for an agent that went in mid-stream
HERMES_ANSWER_SECONDS = seconds("HERMES_ANSWER_SECONDS", 600)  # no sign of life of a turn: `timeout`
HERMES_TURN_END_SECONDS = seconds("HERMES_TURN_END_SECONDS", 1)  # quiet after which a plain agent's turn is over
HERMES_FILES_SECONDS = seconds("HERMES_FILES_SECONDS", 10)  # for the files that an agent announced at a stream's end
HERMES_KEEPALIVE_SECONDS = seconds("HERMES_KEEPALIVE_SECONDS", 10)  # quiet of an event stream before a comment
HERMES_QUEUED_STREAM_SECONDS = seconds("HERMES_QUEUED_STREAM_SECONDS", 120)  # a stream waits for an agent that is away
HERMES_READERS_PER_USER = count("HERMES_READERS_PER_USER", 64)  # open event streams of one user
HERMES_READERS_PER_RUN = count("HERMES_READERS_PER_RUN", 16)  # open event streams of one run
HERMES_IDEMPOTENCY_KEYS = count("HERMES_IDEMPOTENCY_KEYS", 1000)  # of one user and day
HERMES_IDEMPOTENCY_SECONDS = seconds("HERMES_IDEMPOTENCY_SECONDS", 86400)  # a key is remembered this long
HERMES_JOURNAL_SECONDS = seconds("HERMES_JOURNAL_SECONDS", 86400)  # events of an ended run are kept this long
HERMES_PURGE_SECONDS = seconds("HERMES_PURGE_SECONDS", 3600)  # between looks for what is past its time
HERMES_ON_DISCONNECT = text("HERMES_ON_DISCONNECT") or "continue"  # or "stop": what a viewer's leaving means to a run
HERMES_STOP_CONFIRM_SECONDS = seconds("HERMES_STOP_CONFIRM_SECONDS", 30)  # for an agent to confirm a stop
HERMES_QUEUE_SECONDS = seconds("HERMES_QUEUE_SECONDS", 7 * 86400)  # a message waits this long for its agent
HERMES_QUEUE_LIMIT = count("HERMES_QUEUE_LIMIT", 200)  # messages that wait for one agent
HERMES_REPLAY_LIMIT = count("HERMES_REPLAY_LIMIT", 1000)  # messages in one replay
HERMES_REPLAY_BYTES = count("HERMES_REPLAY_BYTES", 8 * MIB)  # text in one replay
HERMES_PAGE_LIMIT = count("HERMES_PAGE_LIMIT", 500)  # frames in one answer of GET /api/frames, at most
HERMES_SESSIONS = count("HERMES_SESSIONS", 10_000)  # sessions of one user
HERMES_OUTBOX_ITEMS = count("HERMES_OUTBOX_ITEMS", 256)  # frames waiting for one socket, then close 4013
HERMES_OUTBOX_BYTES = count("HERMES_OUTBOX_BYTES", MIB)  # the same in bytes
HERMES_WRITER_ITEMS = count("HERMES_WRITER_ITEMS", 4096)  # verbs waiting for a commit in one process

# --- Processes -----------------------------------------------------------------------------------------------------
HERMES_PROCESS_BEAT_SECONDS = seconds("HERMES_PROCESS_BEAT_SECONDS", 5)  # between signs of life of a process
HERMES_PROCESS_LEASE_SECONDS = seconds("HERMES_PROCESS_LEASE_SECONDS", 15)  # without one it counts as dead
HERMES_POSITION_SECONDS = seconds("HERMES_POSITION_SECONDS", 2)  # between repeated positions and looks for missed ones
HERMES_HINT_BYTES = count("HERMES_HINT_BYTES", 64 * KIB)  # largest hint between processes, above it numbers only
HERMES_HERE_SECONDS = seconds("HERMES_HERE_SECONDS", 5)  # between words that a process has readers of a user
HERMES_LAYER_LOST_SECONDS = seconds("HERMES_LAYER_LOST_SECONDS", 15)  # layer away this long: sockets close 4011
HERMES_DRAIN_SECONDS = seconds("HERMES_DRAIN_SECONDS", 10)  # for open streams on SIGTERM, at most
HERMES_APP_FRAMES_PER_SECOND = count("HERMES_APP_FRAMES_PER_SECOND", 50)  # of one user, all devices, in the long run
HERMES_APP_FRAMES_BURST = count("HERMES_APP_FRAMES_BURST", 1000)  # the same, at once
HERMES_AGENT_FRAMES_PER_SECOND = count("HERMES_AGENT_FRAMES_PER_SECOND", 200)  # of one agent, pieces not counted
HERMES_AGENT_FRAMES_BURST = count("HERMES_AGENT_FRAMES_BURST", 2000)  # the same, at once
HERMES_AGENT_BYTES_PER_MINUTE = count("HERMES_AGENT_BYTES_PER_MINUTE", 256 * MIB)  # of one agent; above it is read slower
HERMES_NEW_SESSIONS_PER_MINUTE = count("HERMES_NEW_SESSIONS_PER_MINUTE", 60)  # of one user
HERMES_RATE_LIMIT = switch("HERMES_RATE_LIMIT", True)  # 0 switches all rate limits off (load tests)
HERMES_READY_SECONDS = seconds("HERMES_READY_SECONDS", 2)  # for database and layer to answer /readyz

# --- Upstream: a Hermes API server that the gateway itself asks -----------------------------------------------------
HERMES_UPSTREAM_URL = text("HERMES_UPSTREAM_URL").rstrip("/")  # its address; "" means there is none
HERMES_UPSTREAM_KEY = text("HERMES_UPSTREAM_KEY")  # its API_SERVER_KEY
HERMES_UPSTREAM_AGENT = text("HERMES_UPSTREAM_AGENT") or "hermes"  # the agent name it answers under
HERMES_UPSTREAM_TURNS = count("HERMES_UPSTREAM_TURNS", 4)  # running at once, of all users and processes; the rest waits
HERMES_UPSTREAM_TURN_SECONDS = seconds("HERMES_UPSTREAM_TURN_SECONDS", 1800)  # longest turn, then it is stopped, failed
HERMES_UPSTREAM_WAIT_SECONDS = seconds("HERMES_UPSTREAM_WAIT_SECONDS", 10)  # for one that is away, then the turn fails
HERMES_UPSTREAM_IDLE_SECONDS = seconds("HERMES_UPSTREAM_IDLE_SECONDS", 60)  # without a turn, then a user's place is let go
HERMES_UPSTREAM_HISTORY_MESSAGES = count("HERMES_UPSTREAM_HISTORY_MESSAGES", 200)  # sent along with a question
HERMES_UPSTREAM_HISTORY_BYTES = count("HERMES_UPSTREAM_HISTORY_BYTES", MIB)  # the same in bytes
HERMES_UPSTREAM_IMAGE_BYTES = count("HERMES_UPSTREAM_IMAGE_BYTES", 5 * MIB)  # of all pictures of a question; Hermes takes 10 MB
if HERMES_UPSTREAM_URL:
    upstream = urlsplit(HERMES_UPSTREAM_URL)
    if upstream.scheme not in ("http", "https") or not upstream.hostname or upstream.username or upstream.query:
        raise ImproperlyConfigured("HERMES_UPSTREAM_URL is not an http or https address without user and query")
    if not (HERMES_UPSTREAM_KEY.isascii() and HERMES_UPSTREAM_KEY.isprintable() and HERMES_UPSTREAM_KEY):
        raise ImproperlyConfigured("HERMES_UPSTREAM_URL needs a HERMES_UPSTREAM_KEY of printable ASCII")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", HERMES_UPSTREAM_AGENT):
        raise ImproperlyConfigured("HERMES_UPSTREAM_AGENT is no agent name")
    if not HERMES_UPSTREAM_TURNS:
        raise ImproperlyConfigured("HERMES_UPSTREAM_TURNS must be above zero")

# --- Server (`manage.py serve`) ------------------------------------------------------------------------------------
HERMES_UNREAD_FRAMES = count("HERMES_UNREAD_FRAMES", 256)  # of one socket, before its peer is not read any more
HERMES_UNREAD_BYTES = count("HERMES_UNREAD_BYTES", MIB)  # the same in bytes
HERMES_SEND_BUFFER_BYTES = count("HERMES_SEND_BUFFER_BYTES", 64 * KIB)  # unsent, before a writer has to wait
HERMES_BODY_WINDOW_BYTES = count("HERMES_BODY_WINDOW_BYTES", 256 * KIB)  # of a request body held in memory
HERMES_ACCEPT_SECONDS = seconds("HERMES_ACCEPT_SECONDS", 20)  # for an upgrade to be taken or refused, then 503
HERMES_PING_SECONDS = seconds("HERMES_PING_SECONDS", 20)  # silence before a socket is pinged; 0: never
HERMES_CLOSE_SECONDS = seconds("HERMES_CLOSE_SECONDS", 5)  # for a peer to follow a close, then it is cut off
HERMES_IDLE_SECONDS = seconds("HERMES_IDLE_SECONDS", 60)  # for a request's whole head; between pieces of its body
HERMES_EXIT_SECONDS = seconds("HERMES_EXIT_SECONDS", 14)  # from SIGTERM to the end of the process, whatever happens

# --- Media ---------------------------------------------------------------------------------------------------------
HERMES_MEDIA_MAX_IMAGE_BYTES = count("HERMES_MEDIA_MAX_IMAGE_BYTES", 20 * MIB)
HERMES_MEDIA_MAX_VOICE_BYTES = count("HERMES_MEDIA_MAX_VOICE_BYTES", 50 * MIB)
HERMES_MEDIA_MAX_VIDEO_BYTES = count("HERMES_MEDIA_MAX_VIDEO_BYTES", 200 * MIB)
HERMES_MEDIA_MAX_FILE_BYTES = count("HERMES_MEDIA_MAX_FILE_BYTES", 100 * MIB)
HERMES_UPLOAD_BODY_BYTES = count("HERMES_UPLOAD_BODY_BYTES", 201 * MIB)  # body of an upload, its form included
HERMES_BODY_BYTES = count("HERMES_BODY_BYTES", 10 * MIB)  # any other request body
DATA_UPLOAD_MAX_MEMORY_SIZE = HERMES_BODY_BYTES
FILE_UPLOAD_TEMP_DIR = text("FILE_UPLOAD_TEMP_DIR") or None

# --- Logging -------------------------------------------------------------------------------------------------------
DEFAULT_EXCEPTION_REPORTER = "hermes_site.logs.Report"
DEFAULT_EXCEPTION_REPORTER_FILTER = "hermes_site.logs.ReportFilter"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "hermes_site.logs.Line"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line"},
        **(
            {
                "file": {
                    "class": "logging.handlers.WatchedFileHandler",
                    "filename": HERMES_LOG_FILE,
                    "formatter": "line",
                }
            }
            if HERMES_LOG_FILE
            else {}
        ),
    },
    "root": {"handlers": ["stderr", "file"] if HERMES_LOG_FILE else ["stderr"], "level": "WARNING"},
    "loggers": {
        **{name: {"level": HERMES_LOG_LEVEL} for name in ("hermes_site", "accounts", "media", "chat")},
        "django": {"level": "INFO", "handlers": [], "propagate": True},
        "django.security.DisallowedHost": {"level": "CRITICAL"},  # anybody can send any Host; it is answered by 400
        "django.server": {"level": "INFO", "handlers": [], "propagate": True},
        "channels_redis": {"level": "INFO"},
    },
}
