"""Data sets as their publishers ship them: where they are, and their readers."""
