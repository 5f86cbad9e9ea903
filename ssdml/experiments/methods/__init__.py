"""The methods that can be compared."""
