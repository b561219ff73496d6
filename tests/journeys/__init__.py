"""Whole walks over real processes."""
