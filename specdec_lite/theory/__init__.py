"""Closed forms: how often a draft is accepted, and what that is worth in tokens, time and arithmetic.

`rates` compares two distributions, `tokens` counts tokens per pass, `speedup` turns them into time,
and `starts` computes where rounds begin. All are pure functions of numbers or arrays: the rules that
decide are in `acceptance`, measured times in `measure`.

Symbols: p target and q draft distribution, [..., V]; alpha acceptance rate; gamma draft length
(vLLM's `num_speculative_tokens`, Hugging Face's `num_assistant_tokens`); c time of one draft pass
over time of one target pass; c_hat the same ratio in arithmetic operations; l lenience. Torch
tensors are read as arrays; results are floats or float64 arrays. Functions of numbers broadcast.
Source, unless a docstring names another: Leviathan, Kalman and Matias 2023, arXiv 2211.17192.
"""

from specdec_lite import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
