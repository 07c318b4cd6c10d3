"""Drafts by heads on the target's last hidden state."""
