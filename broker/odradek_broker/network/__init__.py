"""Sockets: listeners, connections, the path of a request from its bytes to those of the response."""
