"""Settings as another process would see them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DUMP = """
import json
from hermes_site import settings
names = [name for name in dir(settings) if name.isupper()]
print(json.dumps({name: getattr(settings, name) for name in names}, default=str))
"""
KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")

Settings = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def python(tmp_path: Path) -> Settings:
    """Run Python on the project with an environment of its own; the data folder is empty at first."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        full = kept | {"HERMES_DATA_DIR": str(tmp_path), "SECRET_KEY": "s" * 50} | environment
        full = {name: value for name, value in full.items() if value != "unset"}
        return subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=full, capture_output=True, text=True, timeout=60
        )

    return run


@pytest.fixture
def fresh(python: Settings) -> Callable[..., dict[str, Any]]:
    """The settings that a new process reads from an environment."""

    def read(**environment: str) -> dict[str, Any]:
        done = python("-c", DUMP, **environment)
        assert done.returncode == 0, done.stderr
        settings: dict[str, Any] = json.loads(done.stdout)
        return settings

    return read
