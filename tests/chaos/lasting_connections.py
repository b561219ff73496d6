"""The settings of the product with database connections of requests that are kept for ten minutes."""

from hermes_site.settings import *  # noqa: F403

DATABASES["default"]["CONN_MAX_AGE"] = 600  # noqa: F405
