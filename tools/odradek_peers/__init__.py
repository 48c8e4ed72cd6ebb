"""Apache Kafka for tests and benchmarks, its jars, tools and servers, and Apache ZooKeeper.

Downloads the jars (`jars`) and old clients (`old_clients`), and runs Kafka's Java tools (`tools`), Kafka's servers
(`server`, `cluster`) and ZooKeeper (`zookeeper`). Not part of the distribution; imports nothing of Odradek, because the
tests compare Odradek with these programs.
"""

from odradek_peers.cluster import KafkaCluster
from odradek_peers.jars import (
    KAFKA_1_1,
    KAFKA_3_9,
    KAFKA_4_0,
    KAFKA_4_3,
    ZOOKEEPER,
    connect_libs,
    libs,
    streams_libs,
    zookeeper_libs,
)
from odradek_peers.server import ApacheKafka
from odradek_peers.tools import JavaTools, RunningTool, ToolFailed
from odradek_peers.zookeeper import ZooKeeperServer

__all__ = [
    "KAFKA_1_1",
    "KAFKA_3_9",
    "KAFKA_4_0",
    "KAFKA_4_3",
    "ZOOKEEPER",
    "ApacheKafka",
    "JavaTools",
    "KafkaCluster",
    "RunningTool",
    "ToolFailed",
    "ZooKeeperServer",
    "connect_libs",
    "libs",
    "streams_libs",
    "zookeeper_libs",
]
