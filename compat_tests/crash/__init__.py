"""`odradek up` ended with kill -9, at random and at operations of its disk: what clients were told holds afterwards."""
