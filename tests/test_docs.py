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


# docs/protocol.md and docs/walk.md


def section(document: str, heading: str) -> str:
    """The text under a heading, up to the next one of its level or above."""
    text = (ROOT / document).read_text()
    level, _, _ = heading.partition(" ")
    start = text.index(f"\n{heading}\n")
    end = re.compile(rf"^#{{1,{len(level)}}} ", re.MULTILINE).search(text, start + len(heading) + 2)
    return text[start : end.start() if end else None]


def first_cells(text: str) -> list[str]:
    """What the rows of tables begin with, headings apart."""
    rows = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    return [cell for cell in rows if not set(cell) <= set("- ")]


def names_in(cells: list[str]) -> set[str]:
    """The names in backticks."""
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_close_code_is_documented() -> None:
    """And none that the gateway does not send; 1009 is the server's own."""
    from hermes_site.errors import CloseCode

    codes = {
        int(cell) for cell in first_cells(section("docs/protocol.md", "### Close codes")) if cell.isdigit()
    }
    assert codes == {int(code) for code in CloseCode} | {1009}


def test_every_frame_type_is_documented() -> None:
    """Those the decoder knows, and `ready`, which only the gateway says."""
    from chat import frames

    types = {one.__struct_config__.tag for one in frames.AnyFrame.__args__} | {"ready"}
    table = section("docs/protocol.md", "## Frames").partition("### Media")[0]
    assert names_in(first_cells(table)) == types


def test_every_error_code_is_documented() -> None:
    """Those of frames, and those that only HTTP has."""
    from hermes_site import errors

    assert names_in(first_cells(section("docs/protocol.md", "### Errors"))) == errors.WIRE_CODES
    classes = [errors.GatewayError]
    for one in classes:
        classes += one.__subclasses__()
    ours = {one.code for one in classes if one.__module__ == errors.__name__}
    over_http = names_in(first_cells(section("docs/protocol.md", "## Over HTTP")))
    assert {name for name in over_http if re.fullmatch(r"[a-z_]+", name)} == ours - errors.WIRE_CODES


def test_every_event_is_documented() -> None:
    """What Apps that asked for `events` may see, and from whom."""
    from chat import events

    rows = re.findall(r"^\| (`.*?`) \| (\w+) \|", section("docs/protocol.md", "### `events`"), re.MULTILINE)
    told = {name: by for names, by in rows for name in re.findall(r"`([^`]+)`", names)}
    unseen = {"message.started", "assistant.delta", "assistant.completed", "done"}  # v3 frames say them
    assert {name for name, by in told.items() if by == "gateway"} == events.FROM_GATEWAY - unseen
    assert {name for name, by in told.items() if by == "agent"} == events.NUMBERED | {"approval.request"}
    assert {name for name, by in told.items() if by == "App"} == {"approval.response"}


def test_every_capability_is_documented() -> None:
    """With a section of its own."""
    from chat import sockets

    text = section("docs/protocol.md", "## Capabilities")
    assert set(re.findall(r"^### `(\w+)`", text, re.MULTILINE)) == sockets.CAPS


def test_the_keys_that_only_the_gateway_writes_are_documented() -> None:
    """So that nobody wonders where they went."""
    from chat import frames

    text = section("docs/protocol.md", "## The envelope")
    assert [key for key in frames.GATEWAY_KEYS if f"`{key}`" not in text] == []
    media = section("docs/protocol.md", "### Media")
    from media.services import FRAME_FIELDS

    for kind, fields in FRAME_FIELDS.items():
        row = re.search(rf"^\| `{kind}` \| (.*) \|$", media, re.MULTILINE)
        assert row is not None and set(re.findall(r"`(\w+)`", row[1])) == set(fields)


def test_every_route_is_documented_and_exists() -> None:
    """Those of accounts, media and chat; what lies under /api/hermes has a page of its own."""
    from django.urls import get_resolver, resolve

    from chat.routing import websocket_urlpatterns

    text = (ROOT / "docs/protocol.md").read_text()
    named = {route for _, route in re.findall(r"`(GET|POST) (/[^`?]*)[`?]", text)}
    for route in named:
        assert resolve(route.replace("{media_id}", "med_1"))
    parts = [part for part in get_resolver().url_patterns if str(part.pattern) == ""]
    routes = {str(one.pattern) for part in parts for one in getattr(part, "url_patterns", [])}
    ours = {
        "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route)
        for route in routes
        if route.startswith(("api/", "media/"))
    }
    assert {
        route for route in ours if not route.startswith(("/api/hermes", "/api/schema", "/api/docs"))
    } == named
    assert [str(one.pattern) for one in websocket_urlpatterns if f"`/{one.pattern}?" not in text] == []


def test_the_examples_of_the_protocol_are_frames() -> None:
    """Each line or object of a JSON example that is a whole frame is taken by the decoder."""
    from chat import frames

    text = (ROOT / "docs/protocol.md").read_text()
    seen = set()
    for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL):
        for example in re.split(r"\n(?=\{)", block.strip()):
            frame = json.loads(example)
            seen.add(frame["type"])
            if frame["type"] != "ready":
                side: frames.Side = "app" if frame.get("from") == "alice" else "agent"
                assert frames.decode(example, side, data_bytes=65536)
    assert {
        "text",
        "image",
        "stream_start",
        "stream",
        "stream_end",
        "error",
        "event",
        "stop",
        "steer",
        "ready",
    } <= seen


def test_the_walk_names_what_exists() -> None:
    """Every module, class and function that docs/walk.md names can be imported."""
    from pkgutil import resolve_name

    text = (ROOT / "docs/walk.md").read_text()
    names = set(re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)`", text))
    assert len(names) > 40
    apps = ("accounts", "bridge", "chat", "hermes_site", "media")
    for name in sorted(names):
        full = name if name.partition(".")[0] in apps else f"chat.{name}"
        assert resolve_name(full) is not None


@pytest.mark.parametrize("document", ["docs/protocol.md", "docs/walk.md"])
def test_settings_that_are_named_exist(document: str) -> None:
    """A page that names a setting names one that is there."""
    named = set(re.findall(r"\bHERMES_[A-Z_]+\b", (ROOT / document).read_text()))
    assert named - set(documented()) == set()
