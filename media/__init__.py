"""Bytes at rest: what they are, where they lie, who may have them."""
