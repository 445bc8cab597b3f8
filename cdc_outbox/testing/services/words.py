"""The two words that all providers share."""

from collections.abc import Callable

Say = Callable[[str], None]
"""Where progress messages go, a line each; called from any thread."""


class Unavailable(Exception):
    """This provider cannot give the service on this machine; the first line of the message says why."""
