"""Readers of tables in each format: text with separators, JSON, Excel, Parquet, Arrow."""
