"""What the tests stand on: a world of real servers, a relay as a subprocess, writers, and a judge of the promises."""
