"""What this broker knows of its cluster: the view of clients, topic creation, producer ids, the controller."""
