"""The cluster's metadata at a broker: its source, the view of clients, topic creation, producer ids."""
