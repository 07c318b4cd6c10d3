"""Many requests, and the engines that serve them: what they print, in this book's terms."""
