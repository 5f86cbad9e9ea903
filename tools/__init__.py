"""Programs for those who work on the project; they are not part of the package."""
