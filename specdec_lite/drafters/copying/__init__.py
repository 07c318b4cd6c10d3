"""Drafts copied from the text or from other texts, and tables that learn."""
