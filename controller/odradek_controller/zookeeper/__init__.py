"""The cluster's metadata in ZooKeeper: the interface to it (`client`), an implementation, and the controller."""
