"""Simulations on a virtual clock and costs from sizes; nothing here runs a model.

`simulate` serves requests in a batch and `goodput` chooses γ for it, `clock` overlaps drafting with
verification, `estimate` predicts a round from sizes, a datasheet and a fit to published speedups.
"""
