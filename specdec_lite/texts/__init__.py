"""Corpora, prompts and tasks. `corpus` needs no download; the task files contain only texts."""
