"""The differences of Kafka 3.9 from 4.3: definitions that it has instead or in addition, and names that it lacks."""

from __future__ import annotations

from .definition import BOOLEAN, CLUSTER_WIDE, INT, LIST, LONG, PASSWORD, PER_BROKER, SHORT, STRING, Definition
from .valid import at_least, between, metadata_version, one_of_any_case, pool_size, repeatable_list_of

TOPIC_39 = (
    Definition("cleanup.policy", LIST, "delete", repeatable_list_of("compact", "delete")),
    Definition("message.downconversion.enable", BOOLEAN, "true"),
    Definition("message.format.version", STRING, "3.0-IV1", metadata_version),
    Definition("message.timestamp.after.max.ms", LONG, "9223372036854775807", at_least(0)),
    Definition("message.timestamp.difference.max.ms", LONG, "9223372036854775807", at_least(0)),
    Definition("segment.bytes", INT, "1073741824", at_least(14)),
)

BROKER_39 = (
    Definition("advertised.listeners", STRING, None, mode=PER_BROKER),
    Definition("auto.include.jmx.reporter", BOOLEAN, "true"),
    Definition("broker.id.generation.enable", BOOLEAN, "true"),
    Definition("control.plane.listener.name", STRING, None),
    Definition("controlled.shutdown.max.retries", INT, "3"),
    Definition("controlled.shutdown.retry.backoff.ms", LONG, "5000"),
    Definition("controller.listener.names", STRING, None),
    Definition("controller.quorum.append.linger.ms", INT, "25"),
    Definition("controller.quorum.election.backoff.max.ms", INT, "1000"),
    Definition("controller.quorum.election.timeout.ms", INT, "1000"),
    Definition("controller.quorum.fetch.timeout.ms", INT, "2000"),
    Definition("controller.quorum.request.timeout.ms", INT, "2000"),
    Definition("controller.quorum.retry.backoff.ms", INT, "20"),
    Definition("delegation.token.master.key", PASSWORD, None),
    Definition("early.start.listeners", STRING, None),
    Definition("eligible.leader.replicas.enable", BOOLEAN, "false"),
    Definition(
        "group.consumer.assignors",
        LIST,
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor,org.apache.kafka.coordinator.group.assignor.RangeAssignor",
    ),
    Definition(
        "group.consumer.migration.policy",
        STRING,
        "disabled",
        one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        internal=True,
    ),
    Definition("group.coordinator.append.linger.ms", INT, "10", at_least(0)),
    Definition("group.coordinator.new.enable", BOOLEAN, "false", internal=True),
    Definition(
        "group.coordinator.rebalance.protocols",
        LIST,
        "classic",
        repeatable_list_of("consumer", "classic", "share", "unknown"),
    ),
    Definition("group.coordinator.threads", INT, "1", at_least(1)),
    Definition("group.share.enable", BOOLEAN, "false", internal=True),
    Definition("group.share.max.groups", SHORT, "10", between(1, 100)),
    Definition("group.share.max.size", SHORT, "200", between(10, 1000)),
    Definition("group.share.partition.max.record.locks", INT, "200", between(100, 10000)),
    Definition("group.share.record.lock.duration.ms", INT, "30000", between(1000, 60000)),
    Definition("inter.broker.protocol.version", STRING, "3.9-IV0", metadata_version),
    Definition("kafka.metrics.reporters", LIST, ""),
    Definition("leader.imbalance.per.broker.percentage", INT, "10"),
    Definition("listeners", STRING, "PLAINTEXT://:9092", mode=PER_BROKER),
    Definition("log.cleanup.policy", LIST, "delete", repeatable_list_of("compact", "delete"), CLUSTER_WIDE),
    Definition("log.dir", STRING, "/tmp/kafka-logs"),
    Definition("log.dirs", STRING, None),
    Definition("log.message.downconversion.enable", BOOLEAN, "true", mode=CLUSTER_WIDE),
    Definition("log.message.format.version", STRING, "3.0-IV1", metadata_version),
    Definition("log.message.timestamp.after.max.ms", LONG, "9223372036854775807", at_least(0), CLUSTER_WIDE),
    Definition("log.message.timestamp.difference.max.ms", LONG, "9223372036854775807", at_least(0), CLUSTER_WIDE),
    Definition("log.segment.bytes", INT, "1073741824", at_least(14), CLUSTER_WIDE),
    Definition("metadata.log.segment.bytes", INT, "1073741824", at_least(12)),
    Definition("metadata.log.segment.min.bytes", INT, "8388608", at_least(12), internal=True),
    Definition("metric.reporters", LIST, "", mode=CLUSTER_WIDE),
    Definition("node.id", INT, "-1"),
    Definition("num.recovery.threads.per.data.dir", INT, "1", at_least(1), CLUSTER_WIDE),
    Definition("num.replica.fetchers", INT, "1", mode=CLUSTER_WIDE),
    Definition("offsets.commit.required.acks", SHORT, "-1"),
    Definition("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding"),
    Definition("password.encoder.iterations", INT, "4096", at_least(1024)),
    Definition("password.encoder.key.length", INT, "128", at_least(8)),
    Definition("password.encoder.keyfactory.algorithm", STRING, None),
    Definition("password.encoder.old.secret", PASSWORD, None),
    Definition("password.encoder.secret", PASSWORD, None),
    Definition("process.roles", LIST, "", repeatable_list_of("broker", "controller")),
    Definition("remote.log.manager.copier.thread.pool.size", INT, "-1", pool_size),
    Definition("remote.log.manager.expiration.thread.pool.size", INT, "-1", pool_size),
    Definition("remote.log.manager.thread.pool.size", INT, "10", at_least(1)),
    Definition("remote.log.reader.threads", INT, "10", at_least(1)),
    Definition("reserved.broker.max.id", INT, "1000", at_least(0)),
    Definition("sasl.enabled.mechanisms", LIST, "GSSAPI", mode=PER_BROKER),
    Definition("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", mode=PER_BROKER),
    Definition("sasl.oauthbearer.expected.audience", LIST, None),
    Definition("ssl.cipher.suites", LIST, "", mode=PER_BROKER),
    Definition("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", mode=PER_BROKER),
    Definition("zookeeper.clientCnxnSocket", STRING, None),
    Definition("zookeeper.connect", STRING, None),
    Definition("zookeeper.connection.timeout.ms", INT, None),
    Definition("zookeeper.max.in.flight.requests", INT, "10", at_least(1)),
    Definition("zookeeper.metadata.migration.enable", BOOLEAN, "false"),
    Definition("zookeeper.metadata.migration.min.batch.size", INT, "200", at_least(1), internal=True),
    Definition("zookeeper.session.timeout.ms", INT, "18000"),
    Definition("zookeeper.set.acl", BOOLEAN, "false"),
    Definition("zookeeper.ssl.cipher.suites", LIST, None),
    Definition("zookeeper.ssl.client.enable", BOOLEAN, "false"),
    Definition("zookeeper.ssl.crl.enable", BOOLEAN, "false"),
    Definition("zookeeper.ssl.enabled.protocols", LIST, None),
    Definition("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS"),
    Definition("zookeeper.ssl.keystore.location", STRING, None),
    Definition("zookeeper.ssl.keystore.password", PASSWORD, None),
    Definition("zookeeper.ssl.keystore.type", STRING, None),
    Definition("zookeeper.ssl.ocsp.enable", BOOLEAN, "false"),
    Definition("zookeeper.ssl.protocol", STRING, "TLSv1.2"),
    Definition("zookeeper.ssl.truststore.location", STRING, None),
    Definition("zookeeper.ssl.truststore.password", PASSWORD, None),
    Definition("zookeeper.ssl.truststore.type", STRING, None),
)

# The configurations that Kafka added after 3.9.
_NAMES = """
    internal.segment.bytes add.partitions.to.txn.retry.backoff.max.ms
    add.partitions.to.txn.retry.backoff.ms config.providers controller.performance.always.log.threshold.ms
    controller.performance.sample.period.ms controller.quorum.auto.join.enable
    controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes cordoned.log.dirs
    follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms
    group.consumer.max.assignment.interval.ms group.consumer.min.assignment.interval.ms
    group.consumer.regex.refresh.interval.ms group.coordinator.background.threads
    group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms group.share.assignors
    group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
    group.share.max.delivery.count.limit group.share.max.partition.max.record.locks
    group.share.max.share.sessions group.share.min.assignment.interval.ms
    group.share.min.delivery.count.limit group.share.min.partition.max.record.locks
    group.share.persister.class.name group.streams.assignment.interval.ms
    group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
    group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms
    group.streams.max.session.timeout.ms group.streams.max.size group.streams.max.standby.replicas
    group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
    group.streams.min.session.timeout.ms group.streams.num.standby.replicas
    group.streams.session.timeout.ms internal.metadata.delete.delay.millis
    internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
    remote.list.offsets.request.timeout.ms remote.log.index.file.cache.ttl.ms
    remote.log.manager.follower.thread.pool.size sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
    share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
    share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
    share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
    share.coordinator.state.topic.segment.bytes share.coordinator.threads
    share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
    transaction.two.phase.commit.enable
"""
NOT_IN_39 = frozenset(_NAMES.split())
