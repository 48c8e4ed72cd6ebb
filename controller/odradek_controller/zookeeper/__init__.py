"""The cluster's metadata in ZooKeeper: a port to ZooKeeper (`client`), its implementation, and the controller on it."""
