"""The demo behind scripts/demo: a small order service, the relay as a process of its own, and a screen to watch."""
