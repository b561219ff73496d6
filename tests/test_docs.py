"""The documents name what the code has, with the values that it has."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| `([A-Z][A-Z_]+)` \| (.+?) \| (.+) \|$", re.MULTILINE)
READ = """
import json
from hermes_site import settings
print(json.dumps({name: getattr(settings, name) for name in dir(settings) if name.startswith("HERMES_")}))
"""


def documented() -> dict[str, tuple[str, str]]:
    """Default and meaning of each variable, as docs/settings.md has them."""
    return {
        name: (default, meaning)
        for name, default, meaning in ROW.findall((ROOT / "docs/settings.md").read_text())
    }


@pytest.fixture(scope="module")
def defaults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without any variable reads."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment |= {"SECRET_KEY": "s" * 50, "HERMES_DATA_DIR": str(tmp_path_factory.mktemp("data"))}
    done = subprocess.run(
        [sys.executable, "-c", READ], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_setting_is_documented() -> None:
    """docs/settings.md names every HERMES_ setting, and none that is not there."""
    declared = {name for name in dir(settings) if name.startswith("HERMES_")}
    assert {name for name in documented() if name.startswith("HERMES_")} == declared


def test_the_documented_defaults_are_the_true_ones(defaults: dict[str, Any]) -> None:
    """To the unit."""
    wrong = {}
    for name, value in defaults.items():
        default = documented()[name][0].strip("`")
        if isinstance(value, bool):
            same = default == str(int(value))
        elif isinstance(value, int | float):
            same = default == f"{value:g}" or float(default) == value
        elif name == "HERMES_DATA_DIR":
            same = default == "var"
        else:
            same = default == (value or "none")
        if not same:
            wrong[name] = (default, value)
    assert wrong == {}


def test_every_setting_does_something() -> None:
    """A setting that nothing reads would be a promise that is not kept."""
    source = (ROOT / "hermes_site/settings.py").read_text()
    files = [
        path for app in ("hermes_site", "accounts", "media", "chat") for path in (ROOT / app).rglob("*.py")
    ]
    text = "".join(path.read_text() for path in files if path.name != "settings.py")
    names = [name for name in dir(settings) if name.startswith("HERMES_")]
    unread = [
        name for name in names if name not in text and len(re.findall(rf"(?<![A-Z_\"]){name}\b", source)) < 2
    ]
    assert unread == []


def test_other_variables_of_the_settings_are_documented_too() -> None:
    """Whatever name settings.py reads."""
    source = (ROOT / "hermes_site/settings.py").read_text()
    read = set(re.findall(r'(?:text|words|switch|count|seconds)\(\s*"([A-Z_]+)"', source))
    assert "SECRET_KEY" in read
    assert read - set(documented()) == set()


def test_every_command_is_in_the_readme() -> None:
    """The table of operator commands is complete."""
    commands = {
        path.stem
        for app in ("hermes_site", "accounts", "media", "chat")
        for path in (ROOT / app / "management/commands").glob("[a-z]*.py")
    }
    text = (ROOT / "README.md").read_text()
    assert {"demo", "create_key"} <= commands
    missing = [
        command
        for command in sorted(commands)
        if f"manage.py {command}" not in text and command != "run_local"
    ]
    assert missing == []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [target for target in targets if f"make {target}" not in text] == []


@pytest.mark.parametrize(
    "document",
    ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))],
)
def test_links_lead_somewhere(document: str) -> None:
    """Every relative link of a document names a file that is there."""
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (ROOT / document).parent.joinpath(target).exists(), target


def test_every_module_says_its_subject_first() -> None:
    """The first statement is a docstring, and none is much longer than 400 lines."""
    wrong = []
    for app in ("hermes_site", "accounts", "media", "chat", "bridge"):
        for path in (ROOT / app).rglob("*.py"):
            text = path.read_text()
            if "migrations" in path.parts or not text.strip():
                continue
            if not text.startswith(('"""', "'''")) or text.count("\n") > 500:
                wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []
