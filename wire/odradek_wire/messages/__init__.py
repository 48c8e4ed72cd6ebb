"""One generated module per definition; import the one you need."""
