"""`odradek up` killed at random and at operations of its disk: what clients have seen must hold afterwards."""
