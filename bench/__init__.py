"""Load generators, reference relays, side-by-side tables."""
