"""A real Hermes Agent for tests, and the language model it asks, which plays a script."""
