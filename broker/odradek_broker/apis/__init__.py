"""One module per API key, and one explicit table of them (`table.py`)."""
