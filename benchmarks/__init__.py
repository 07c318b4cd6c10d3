"""Measure the library. Run `make bench` or `python -m benchmarks --help`."""
