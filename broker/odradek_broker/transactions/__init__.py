"""The transaction coordinator, transaction markers and verification."""
