"""Checks for the book's exercises: `check` tries an answer, and each other file holds the checks of
one chapter's topic."""
