"""Drafts by parts of the target itself."""
