"""Management of the whole site."""
