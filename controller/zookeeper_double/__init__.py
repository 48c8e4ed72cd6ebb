"""An in-memory ZooKeeper for the tests and the simulation; not part of any distribution.

Begin reading at `server`: its clients implement `odradek_controller.zookeeper.client` without a network.
"""
