"""Measurements: `timing` of passes and rounds, `machine` facts, `profiler` operations of a pass,
`replay` without a model, `intervals` of measured numbers, and `stamps` for recordings.
"""

from specdec_lite import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
