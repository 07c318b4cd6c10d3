"""Rounds for a GPU.

`graphs` has `StaticLM`, whose passes have fixed shapes (`programs`) that CUDA graphs can capture.
`on_device` has rounds that read one result back each, and `whole_draft` a drafter whose whole draft
is one graph.
"""
