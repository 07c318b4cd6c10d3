"""Acceptance rules: which drafted tokens are kept, and which token the target adds.

A rule is a pure function (proposal, target_probs, rng) → Verdict, marked by `@rule(lossless=…)`.
Read `exact` first, then `greedy`, `block`, `multi` and `lossy`. `protocol` contains what they share;
`distributions` computes exactly what a rule emits.
"""

from specdec_lite import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
