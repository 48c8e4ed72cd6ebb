"""The log manager and the log cleaner: a broker's repeating work on its logs."""
