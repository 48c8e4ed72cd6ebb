"""Sockets: listeners, connections, the path of a request from bytes to bytes."""
