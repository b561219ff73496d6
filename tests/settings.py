"""The settings of the test suite: the real ones in a data folder of their own, with a cheap password hasher."""

import atexit
import os
import shutil
import tempfile

if "HERMES_DATA_DIR" not in os.environ:
    os.environ["HERMES_DATA_DIR"] = tempfile.mkdtemp(prefix="hermes-tests-")
    atexit.register(shutil.rmtree, os.environ["HERMES_DATA_DIR"], ignore_errors=True)
os.environ.setdefault("SECRET_KEY", "a-secret-key-for-tests-alone-0123456789-abcdefghij")
os.environ.setdefault("ALLOWED_HOSTS", "testserver,127.0.0.1,localhost")

from hermes_site.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}  # noqa: F405
WHITENOISE_USE_FINDERS = True  # no collectstatic before the tests
WHITENOISE_AUTOREFRESH = True
