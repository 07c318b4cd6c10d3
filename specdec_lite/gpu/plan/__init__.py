"""Measure a GPU: `python -m specdec_lite gpu` writes one recording per machine.

`shapes` has the models that are timed, `bench` what every step receives, `forward` a pass over keys
and values of a fixed length. The steps are in `card` (the machine itself, attention, a trace),
`passes` (targets, drafts, experts) and `rounds` (the shipped pair, and rounds with synthetic
acceptance). `run` runs the steps under one budget of seconds. Measuring needs torch, transformers,
numpy, safetensors and tokenizers alone.
"""
