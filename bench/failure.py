"""The one error of the benchmark."""


class BenchFailed(Exception):
    """No figure can be given: a relay died, events are missing, a server is not there. The message says which."""
