"""Conversations: values without a database first, then the writer and its items on a real one."""
