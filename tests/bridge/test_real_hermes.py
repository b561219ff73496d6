"""The client and the bridge against a real Hermes Agent 0.19.0 whose language model plays a script."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge import events
from bridge.events import Order, Refused
from bridge.gateway import Gateway, Times
from bridge.hermes import Hermes
from bridge.runner import Runner
from bridge.state import State
from tests.bridge.fakes import FakeGateway, running, until
from tests.hermes.launcher import HermesServer
from tests.hermes.llm import ScriptedLLM

pytestmark = pytest.mark.timeout(300)  # the first test may install it
SLOW = 60.0


@pytest.fixture
async def hermes(hermes_server: HermesServer) -> AsyncIterator[Hermes]:
    client = Hermes(hermes_server.base_url, hermes_server.key, wait_seconds=3)
    yield client
    await client.close()


async def ask(hermes: Hermes, text: str, **more: object) -> list[events.Event]:
    order = Order("m1", "chat_test", text, **more)  # type: ignore[arg-type]
    return [event async for event in hermes.follow(await hermes.start(order))]


def text_of(said: list[events.Event]) -> str:
    return "".join(event.text for event in said if isinstance(event, events.Delta))


async def test_it_streams(hermes: Hermes):
    """Word by word, then the end with the whole text; the visible text never comes again as reasoning."""
    said = await ask(hermes, "@slow 8 20")
    assert text_of(said) == "word1 word2 word3 word4 word5 word6 word7 word8"
    assert sum(isinstance(event, events.Delta) for event in said) > 3
    assert [type(event) for event in said if not isinstance(event, events.Delta)] == [events.Completed]


async def test_tools_are_told(hermes: Hermes):
    """A command that works and one that fails, with the text around them."""
    said = await ask(
        hermes, '@before I look\n@tool terminal {"command": "echo hi"}\n@tool terminal {"command": "false"}'
    )
    tools = [event for event in said if isinstance(event, events.ToolStarted | events.ToolEnded)]
    assert [(tool.name, tool.call_id) for tool in tools] == [
        ("tool.started", "call_1"),
        ("tool.completed", "call_1"),
        ("tool.started", "call_2"),
        ("tool.failed", "call_2"),
    ]
    assert text_of(said).startswith("I look\n\nTool result:")


async def test_a_failing_model_is_a_failure(hermes: Hermes):
    """The error is the end of the run and no text of it."""
    said = await ask(hermes, "@fail 401")
    assert len(said) == 1
    assert isinstance(said[0], events.Failed)
    assert "401" in said[0].text


async def test_a_cut_model_stream_is_whole_in_the_end(hermes: Hermes):
    """Hermes asks the model to go on, and the text is one."""
    assert text_of(await ask(hermes, "@cut 3\n@slow 6 5")) == "word1 word2 word3 word4 word5 word6"


async def test_the_past_is_what_we_say_it_is(hermes: Hermes):
    """Hermes does not load a session's history for a run; ours is what the model gets."""
    await ask(hermes, "this is not in the history")
    past = ({"role": "user", "content": "I am Bob"}, {"role": "assistant", "content": "Hello"})
    assert text_of(await ask(hermes, "@recall", history=past)) == "I am Bob"
    assert text_of(await ask(hermes, "@recall")) == "nothing"


async def test_instructions_reach_the_model_for_one_turn(hermes: Hermes):
    """They are in the system text of that turn and of no other."""
    assert text_of(await ask(hermes, "@instructed XYZZY", instructions="Say XYZZY.")) == "yes"
    assert text_of(await ask(hermes, "@instructed XYZZY")) == "no"


async def test_stop_ends_a_running_turn(hermes: Hermes):
    """In a text and inside a command, the end is `cancelled`."""
    for text, sign in (
        ("@slow 200 50", events.Delta),
        ('@tool terminal {"command": "sleep 50"}', events.ToolStarted),
    ):
        run_id = await hermes.start(Order("m1", "chat_stop", text))
        said = []
        async for event in hermes.follow(run_id):
            if isinstance(event, sign) and not any(isinstance(earlier, sign) for earlier in said):
                await hermes.stop(run_id)
            said.append(event)
        assert isinstance(said[-1], events.Cancelled)
        await hermes.stop(run_id)  # a run that has ended is left alone


async def test_a_dangerous_command_waits_for_approval(hermes: Hermes):
    """Denied, it does not run, and the model is told so."""
    run_id = await hermes.start(
        Order("m1", "chat_ask", '@tool terminal {"command": "rm -rf $HOME/nothing/x"}')
    )
    said = []
    async for event in hermes.follow(run_id):
        said.append(event)
        if isinstance(event, events.ApprovalRequest):
            assert "rm -rf" in event.command
            assert "deny" in event.choices
            await hermes.approve(run_id, event.request_id, "deny")
    assert any(isinstance(event, events.ApprovalRequest) for event in said)
    assert any(isinstance(event, events.ToolEnded) and event.failed for event in said)
    assert isinstance(said[-1], events.Completed)


async def test_a_wrong_key_is_refused(hermes_server: HermesServer):
    """Not as an answer, and without the key in the text."""
    wrong = Hermes(hermes_server.base_url, "wrong-key-0123456789")
    with pytest.raises(Refused, match="does not accept our key"):
        await wrong.start(Order("m1", "chat_1", "hello"))
    await wrong.close()


async def test_a_run_is_found_again_by_its_id(hermes: Hermes, hermes_server: HermesServer):
    """A new client, as after a restart of the bridge, gets the whole text and the end."""
    run_id = await hermes.start(Order("m1", "chat_again", "@slow 20 50"))
    async for event in hermes.follow(run_id):
        if isinstance(event, events.Delta):
            break
    other = Hermes(hermes_server.base_url, hermes_server.key)
    said = [event async for event in other.follow(run_id, resumed=True)]
    await other.close()
    assert text_of(said).split() == [f"word{n}" for n in range(1, 21)]
    assert isinstance(said[-1], events.Completed)


@contextlib.asynccontextmanager
async def bridge(gateway: FakeGateway, server: HermesServer, path: Path) -> AsyncIterator[None]:
    hermes, state = Hermes(server.base_url, server.key, wait_seconds=1), State(path)
    runner = Runner(hermes, state)
    async with running(runner.run(Gateway(gateway.url, "hk_a_b", frozenset(), Times(backoff=(0.05,))))):
        yield
    await hermes.close()
    state.close()


async def test_a_conversation_goes_on_over_restarts_of_either_side(
    hermes_server: HermesServer, scripted_llm: ScriptedLLM, tmp_path: Path
):
    """The third question knows the first two, whichever side was restarted in between, and each was asked once."""
    path = tmp_path / "bridge.sqlite3"
    async with FakeGateway(None) as gateway:
        async with bridge(gateway, hermes_server, path):
            first = await gateway.connection(1)
            await first.ask("I am Alice one")
            await until(lambda: first.of_type("stream_end"), SLOW)
        async with bridge(gateway, hermes_server, path):
            second = await gateway.connection(2)
            await second.ask("I am Alice two", id="m2")
            await until(lambda: second.of_type("stream_end"), SLOW)
            hermes_server.restart()
            await second.ask("@recall", id="m3")
            await until(lambda: len(second.of_type("stream_end")) == 2, SLOW)
            assert second.text() == "You said: I am Alice twoI am Alice one | I am Alice two"
    assert scripted_llm.times_asked("I am Alice one") == scripted_llm.times_asked("I am Alice two") == 1


async def test_a_killed_hermes_is_an_error_and_the_next_question_works(
    hermes_server: HermesServer, scripted_llm: ScriptedLLM, tmp_path: Path
):
    """In mid-stream and before the turn: one error each, no answer; after its restart everything works."""
    async with FakeGateway(None) as gateway, bridge(gateway, hermes_server, tmp_path / "bridge.sqlite3"):
        connection = await gateway.connection()
        await connection.ask("@slow 400 50\nkilled in the middle")
        await until(lambda: connection.of_type("stream"), SLOW)
        hermes_server.kill()
        await until(lambda: connection.of_type("error"), SLOW)
        await connection.ask("nobody there", id="m2")
        await until(lambda: len(connection.of_type("error")) == 2, SLOW)
        assert [error["reply_to"] for error in connection.of_type("error")] == ["m1", "m2"]
        assert [error["data"]["code"] for error in connection.of_type("error")] == ["offline", "offline"]
        hermes_server.start()
        await connection.ask("back again", id="m3")
        await until(lambda: connection.of_type("stream_end"), SLOW)
        assert connection.text().endswith("You said: back again")
        assert len(connection.of_type("error")) == 2
        assert scripted_llm.times_asked("killed in the middle") == 1
        assert scripted_llm.times_asked("nobody there") == 0
