"""The history of released records: an index, rows with bands, aggregates, and files to download."""
