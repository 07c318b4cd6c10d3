"""Measurements: `timing` of passes and rounds, `machine` facts, `profiler` operations of a pass,
`replay` without a model, `intervals` of measured numbers, and `stamps` for recordings.
"""
