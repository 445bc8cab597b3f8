"""The long run: all tests with `--long`, folder by folder, and the page that says what came of it."""
