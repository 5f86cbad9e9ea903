"""Published semi-supervised metric learners, one method a file."""
