"""Tests, as a tree that mirrors the code, and what runs the product from outside."""
