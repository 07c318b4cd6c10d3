"""Drafts by a smaller language model, fixed or trained while it drafts."""
