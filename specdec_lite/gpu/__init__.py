"""Rounds for a GPU: passes of fixed shape that can be captured (`graphs`), and one read a round
(`on_device`).
"""
