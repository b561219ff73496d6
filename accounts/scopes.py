"""The scopes that exist: what a credential may do."""

AGENT = "agent"  # its own socket
MEDIA = "media"  # upload, and read what it uploaded or was sent
CHAT = "chat"  # act as the user's App, over HTTP and /ws/app

ALL = (AGENT, MEDIA, CHAT)
DEFAULT = (AGENT, MEDIA)
OF_TOKENS = frozenset({CHAT, MEDIA})


def parse(text: str) -> tuple[str, ...]:
    """
    Read a comma list of scopes; order and repeats do not matter.

    Raises:
        ValueError: If one is unknown or there is none.
    """
    named = {word.strip() for word in text.split(",") if word.strip()}
    if unknown := sorted(named.difference(ALL)):
        raise ValueError(f"unknown scope {unknown[0]}; there are {', '.join(ALL)}")
    if not named:
        raise ValueError("a key needs at least one scope")
    return tuple(scope for scope in ALL if scope in named)


def join(scopes: tuple[str, ...]) -> str:
    """The stored form that `parse` reads."""
    return ",".join(scope for scope in ALL if scope in scopes)
