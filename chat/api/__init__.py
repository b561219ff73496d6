"""The HTTP doors of chat."""
