"""The cluster's metadata in ZooKeeper: a port to it (`client`), its two homes (`kazoo_client`, `double`), its users."""
