"""Real MySQL and Kafka for tests and the demo: named by the environment, run in Docker, or from packages.

Everything but the Docker provider needs the standard library alone, and works before anything is installed.
"""
