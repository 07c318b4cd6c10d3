"""What the book's pages need: figures, interactives, exercises and recordings."""
