"""Side-by-side measurements. One command: `make bench`, or `python -m benchmarks --help`."""
