"""Drafts of several tokens by one pass of a draft model or head."""
