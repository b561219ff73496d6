"""Conversations: the wire, the journal, runs, and the doors people and agents come through."""
