"""What the relay costs and how fast it is, beside the polling relay that people write; see docs/benchmarks.md."""
