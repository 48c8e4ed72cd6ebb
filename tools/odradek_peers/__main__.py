"""`python -m odradek_peers`: download the missing peers and print their folders."""

from odradek_peers.jars import KAFKA_1_1, KAFKA_3_9, KAFKA_4_0, KAFKA_4_3, libs, zookeeper_libs
from odradek_peers.old_clients import kafka_python_2_0_2

for version in (KAFKA_4_3, KAFKA_4_0, KAFKA_3_9, KAFKA_1_1):
    print(libs(version))
print(zookeeper_libs())
print(kafka_python_2_0_2())
