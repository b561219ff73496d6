"""What must be true when everything has come to rest, whatever was killed before."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.device import Device
from tests.chaos.hermes import Order, ScriptedHermes
from tests.rig.clerk import Clerk
from tests.rig.sockets import App, Frame

LIVE = ("queued", "running", "stopping")
TERMINAL = ("run.completed", "run.failed", "run.cancelled", "run.interrupted")
BEGUN_ANEW = "begun_anew"
JOURNAL = """
SELECT m.public_id, r.public_id, r.status, r.code, j.first_seq, j.last_seq, j.events
FROM chat_run r LEFT JOIN chat_message m ON r.user_message_id = m.id
LEFT JOIN chat_journalrow j ON j.run_id = r.id JOIN accounts_user u ON r.user_id = u.id
WHERE u.username = '{user}' ORDER BY r.created_at, r.id, j.first_seq
"""


@dataclass
class Run:
    """A run as the tables have it."""

    question: str | None
    status: str
    code: str
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def errors(self) -> list[Frame]:
        """The `error` frames that its events told."""
        return [event["v3"]["error"] for event in self.events if "error" in event.get("v3", {})]

    @property
    def streams(self) -> set[str]:
        """The ids of the streams that began in it."""
        return {event["v3"]["start"]["id"] for event in self.events if "start" in event.get("v3", {})}


def runs_of(clerk: Clerk, user: str) -> dict[str, Run]:
    """All runs of a user with their events, by run id."""
    runs: dict[str, Run] = {}
    for question, id, status, code, *_, events in clerk.ask("sql", statement=JOURNAL.format(user=user)):
        run = runs.setdefault(id, Run(None if question == "None" else question, status, code))
        run.events.extend([] if events == "None" else json.loads(events))
    return runs


async def replay(app: App) -> list[Frame]:
    """Everything after the cursor that an App with `sync` has asked for."""
    ready = await app.expect(type="ready")
    frames: list[Frame] = []
    while not frames or frames[-1]["cursor"] < ready["data"]["cursor"]:
        frame = await app.next()
        if "cursor" in frame:
            frames.append(frame)
    return frames


@dataclass
class Verdict:
    """Counts, and every sentence that did not hold."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def judge(
        self,
        asked: Iterable[Order],
        devices: Iterable[Device],
        stored: list[Frame],
        agents: Iterable[ScriptedHermes],
        runs: dict[str, Run],
    ) -> "Verdict":
        """Hold everything against everything."""
        orders = {order.mark: order for order in asked}
        devices = list(devices)
        self._journal(runs)
        for device in devices:
            self._device(device, stored, runs)
        answers: dict[str, list[Frame]] = defaultdict(list)
        for frame in stored:
            if "run" not in frame:
                answers[frame.get("reply_to")].append(frame)
                self._claim(frame.get("reply_to") in orders, f"an answer to nothing: {frame}")
        questions = Counter(frame["id"] for frame in stored if "run" in frame)
        self._claim(
            set(questions) == set(orders), f"stored: {questions.keys() ^ orders.keys()} too much or too few"
        )
        self._claim(set(questions.values()) <= {1}, f"stored twice: {questions}")
        told = {run.question: run for run in runs.values() if run.question is not None}
        for mark in orders:
            turns = [turn for agent in agents for turn in agent.ran(mark)]
            run = told.get(mark)
            if run is not None and run.code == BEGUN_ANEW:  # then the answer is a run of its own
                self.counts["begun anew"] += 1
                run = [
                    one for one in runs.values() if {frame["id"] for frame in answers[mark]} & one.streams
                ][-1]
            self._turn(mark, answers[mark], turns, run)
        return self

    def _claim(self, true: bool, what: str) -> None:
        if not true:
            self.wrong.append(what)

    def _journal(self, runs: dict[str, Run]) -> None:
        """Numbers without holes, one end."""
        for id, run in runs.items():
            numbers = [event["seq"] for event in run.events]
            self._claim(numbers == list(range(1, len(numbers) + 1)), f"numbers of {id}: {numbers}")
            ends = [event["event"] for event in run.events if event["event"] in TERMINAL]
            self._claim(ends == [f"run.{run.status}"], f"ends of {id}, which is {run.status}: {ends}")

    def _device(self, device: Device, stored: list[Frame], runs: dict[str, Run]) -> None:
        """The device shows what is stored, each once, in its order; errors of turns came once at most."""
        self.wrong.extend(device.complaints)
        shown = [(one.cursor, one.id, one.session, one.reply_to, one.text) for one in device.shown]
        true = [
            (frame["cursor"], frame["id"], frame["session"], frame.get("reply_to"), frame["data"]["text"])
            for frame in stored
        ]
        for mine, right in zip(shown, true, strict=False):
            if mine != right:
                self.wrong.append(f"{device.name} shows {mine}, stored is {right}")
                break
        self._claim(len(shown) == len(true), f"{device.name} shows {len(shown)} of {len(true)}")
        self._claim(not device.open, f"{device.name}: still streaming: {device.open}")
        self._claim(not device.outbox, f"{device.name}: never taken: {list(device.outbox)}")
        came = Counter(error["id"] for error in device.errors)
        for run in runs.values():
            for error in run.errors:
                self._claim(
                    came[error["id"]] <= 1, f"{device.name} was told {came[error['id']]} times: {error}"
                )
        self.counts["devices"] += 1
        self.counts["connections"] += len(device.closes)

    def _turn(self, mark: str, answers: list[Frame], turns: list[Any], run: Run | None) -> None:
        self._claim(len(turns) <= 1, f"{mark} was run {len(turns)} times")
        self._claim(len(answers) <= 1, f"{mark} has {len(answers)} answers: {answers}")
        self.counts["turns"] += 1
        if run is None:
            self.wrong.append(f"{mark} has no run")
            return
        self._claim(run.status not in LIVE, f"{mark} is still {run.status}")
        made = turns[0].text if turns else ""
        text = answers[0]["data"]["text"] if answers else ""
        called_complete = (
            bool(answers) and run.status == "completed" and not answers[0]["data"].get("interrupted")
        )
        if called_complete:
            self.counts["complete"] += 1
            whole = bool(turns) and turns[0].end == "completed" and text == made
            ends = [turn.end for turn in turns]
            self._claim(whole, f"{mark} is called complete: {text!r}, made was {made!r}, which {ends}")
            self._claim(run.errors == [], f"{mark} is complete and has errors: {run.errors}")
            return
        self.counts[f"{run.status}: {run.errors[0]['data']['code'] if run.errors else 'no error'}"] += 1
        self._claim(made.startswith(text), f"{mark} shows {text[-80:]!r}, which was not made: {made[-80:]!r}")
        self._claim(len(run.errors) == 1, f"{mark} ({run.status}) was told by {len(run.errors)} errors")
        if answers and run.status != "failed":
            self._claim(
                answers[0]["data"].get("interrupted") is True, f"{mark} is not marked: {answers[0]['data']}"
            )
