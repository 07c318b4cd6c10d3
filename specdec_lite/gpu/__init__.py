"""Rounds for a GPU: passes of fixed shape that can be captured (`graphs`), one read a round
(`on_device`), and a draft that is one graph (`whole_draft`).
"""
