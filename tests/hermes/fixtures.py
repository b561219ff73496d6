"""The fixtures `scripted_llm`, `hermes_server` and `newer_hermes_server`, one of each for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hermes.launcher import HermesServer
from tests.hermes.llm import ScriptedLLM


@pytest.fixture(scope="session")
def scripted_llm() -> Iterator[ScriptedLLM]:
    """A language model that does what the question says."""
    llm = ScriptedLLM().start()
    yield llm
    llm.stop()


@pytest.fixture(scope="session")
def hermes_server(
    scripted_llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HermesServer]:
    """A Hermes Agent 0.19.0 that asks the scripted model; a test that kills it starts it again."""
    server = HermesServer(tmp_path_factory.mktemp("hermes"), scripted_llm.url).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def newer_hermes_server(
    scripted_llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HermesServer]:
    """A Hermes of the 0.22 line that asks the same model."""
    server = HermesServer(tmp_path_factory.mktemp("hermes"), scripted_llm.url, "0.22.2").start()
    yield server
    server.stop()
