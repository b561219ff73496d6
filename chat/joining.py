"""How an App joins: its place in the log and in live runs, taken in one transaction. For the writer."""

from __future__ import annotations

from dataclasses import dataclass

from chat import queries
from chat.batch import Batch
from chat.presence import Quiet
from chat.reader import Reader
from chat.telling import RunRef


@dataclass
class Place:
    """Where an App begins to follow."""

    cursor: int
    app_cursor: int  # agent messages after it, up to `cursor`, are this App's to be told
    runs: list[tuple[RunRef, int]]
    streaming: list[int]  # keys of runs with an open stream, oldest first


class Join(Quiet):
    """
    Take an App's place. What this batch itself commits is told live, so it is not counted.

    `claims`: an App without `sync` takes over what no App socket was handed.
    """

    def __init__(self, user_id: int, reader: Reader, *, claims: bool) -> None:
        self.user_id = user_id
        self.reader = reader
        self.claims = claims

    def load(self, batch: Batch) -> None:
        """The user's numbers, locked."""
        batch.want_log(self.user_id)

    def apply(self, batch: Batch) -> Place:
        """Read the place, and claim."""
        cursor, app_cursor = batch.cursors_before(self.user_id)
        place = Place(cursor, app_cursor, queries.live_runs(self.user_id), queries.open_streams(self.user_id))
        if self.claims:
            batch.claim_messages(self.user_id)
        self.reader.is_app = True
        return place


class MoveAppCursor(Quiet):
    """An agent message committed elsewhere is about to be handed to an App socket here."""

    def __init__(self, user_id: int, cursor: int) -> None:
        self.user_id = user_id
        self.cursor = cursor

    def load(self, batch: Batch) -> None:
        """The user's numbers, locked."""
        batch.want_log(self.user_id)

    def apply(self, batch: Batch) -> None:
        """Everything up to it counts as handed."""
        batch.move_app_cursor(self.user_id, self.cursor)
