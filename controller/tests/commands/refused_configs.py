"""Changes of configurations that a controller refuses, each with the error and the message of Kafka."""

from __future__ import annotations

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
Item = tuple[str, int, str | None]

DYNAMIC = "Cannot update these configs dynamically: [{}]"
PER_LISTENER = "These security configs can be dynamically updated only per-listener using the listener prefix: [{}]"
ILLEGAL = (
    "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
)
INVALID_DYNAMIC = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
NOT_LONG = "Invalid value {} for configuration {}: Not a number of type LONG"
NOT_INT = "Invalid value abc for configuration {}: Not a number of type INT"

REFUSED: list[tuple[int, str, Item, str, str | None]] = [
    (TOPIC, "t", ("retention.ms", SET, "abc"), "INVALID_CONFIG", NOT_LONG.format("abc", "retention.ms")),
    (TOPIC, "t", ("retention.ms", SET, ""), "INVALID_CONFIG", NOT_LONG.format("", "retention.ms")),
    (TOPIC, "t", ("foo", SET, "1"), "INVALID_CONFIG", "Unknown topic config name: foo"),
    (TOPIC, "t", ("retention.ms", SET, None), "INVALID_REQUEST", "Null value not supported for : retention.ms"),
    (TOPIC, "nope", ("retention.ms", SET, "1"), "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'nope' does not exist."),
    (TOPIC, "", ("retention.ms", SET, "1"), "INVALID_REQUEST", "Default topic resources are not allowed."),
    (TOPIC, "a b", ("retention.ms", SET, "1"), "INVALID_TOPIC_EXCEPTION", ILLEGAL),
    (
        TOPIC,
        "t",
        ("retention.ms", APPEND, "1"),
        "INVALID_CONFIG",
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    (
        TOPIC,
        "t",
        ("retention.ms", SUBTRACT, "1"),
        "INVALID_CONFIG",
        "Can't SUBTRACT to key retention.ms because its type is not LIST.",
    ),
    (
        TOPIC,
        "t",
        ("cleanup.policy", APPEND, "bad"),
        "INVALID_CONFIG",
        "Invalid value bad for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    (BROKER, "1", ("node.id", SET, "5"), "INVALID_REQUEST", DYNAMIC.format("node.id")),
    (BROKER, "", ("node.id", SET, "5"), "INVALID_REQUEST", DYNAMIC.format("node.id")),
    (
        BROKER,
        "1",
        ("advertised.listeners", SET, "PLAINTEXT://h:1"),
        "INVALID_REQUEST",
        DYNAMIC.format("advertised.listeners"),
    ),
    (
        BROKER,
        "9",
        ("log.retention.ms", SET, "5"),
        "INVALID_REQUEST",
        "Unexpected broker id, expected 1, but received 9",
    ),
    (
        BROKER,
        "-1",
        ("log.retention.ms", SET, "5"),
        "INVALID_REQUEST",
        "Unexpected broker id, expected 1, but received -1",
    ),
    (BROKER, "x", ("log.retention.ms", SET, "5"), "INVALID_REQUEST", "Node id must be an integer, but it is: x"),
    (BROKER, "1", ("log.retention.ms", SET, "abc"), "INVALID_REQUEST", NOT_LONG.format("abc", "log.retention.ms")),
    (BROKER, "", ("ssl.keystore.location", SET, "a"), "INVALID_REQUEST", PER_LISTENER.format("ssl.keystore.location")),
    (BROKER, "1", ("ssl.keystore.location", SET, "a"), "INVALID_REQUEST", PER_LISTENER.format("ssl.keystore.location")),
    (
        BROKER,
        "1",
        ("num.io.threads", SET, "0"),
        "INVALID_REQUEST",
        "Invalid value 0 for configuration num.io.threads: Value must be at least 1",
    ),
    (
        BROKER,
        "1",
        ("num.io.threads", SET, "1000"),
        "INVALID_REQUEST",
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed "
        "for num.io.threads=1000, value should not be greater than double the current value 8 "
        "for configuration Invalid dynamic configuration",
    ),
    (
        BROKER,
        "1",
        ("remote.log.reader.threads", SET, "4"),
        "INVALID_REQUEST",
        INVALID_DYNAMIC.format(
            "Dynamic thread count update validation failed for remote.log.reader.threads=4, value should be at least "
            "half the current value 10"
        ),
    ),
    (
        BROKER,
        "1",
        ("log.cleaner.threads", SET, "3"),
        "INVALID_REQUEST",
        INVALID_DYNAMIC.format(
            "Log cleaner threads cannot be increased to more than double the current value 1",
        ),
    ),
    (
        BROKER,
        "",
        ("log.cleaner.dedupe.buffer.size", SET, "1048576"),
        "INVALID_REQUEST",
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    ),
    (
        BROKER,
        "1",
        ("log.local.retention.ms", SET, "604800001"),
        "INVALID_REQUEST",
        INVALID_DYNAMIC.format(
            "Invalid value 604800001 for configuration log.local.retention.ms: Value must not be more than "
            "log.retention.ms property value: 604800000"
        ),
    ),
    (
        BROKER,
        "",
        ("log.roll.ms", SET, "0"),
        "INVALID_REQUEST",
        "requirement failed: log.roll.ms must be greater than or equal to 1",
    ),
    (BROKER, "", ("max.connections", SET, "0"), "INVALID_REQUEST", INVALID_DYNAMIC.format("Invalid max.connections 0")),
    (
        BROKER,
        "",
        ("max.connections.per.ip.overrides", SET, "10.0.0.1:5,here"),
        "INVALID_REQUEST",
        "Error parsing configuration property 'max.connections.per.ip.overrides': begin 0, end -1, length 4",
    ),
    (
        BROKER,
        "",
        ("max.connections.per.ip.overrides", SET, "10.0.0.1:x"),
        "INVALID_REQUEST",
        'For input string: "x"',
    ),
    (
        BROKER,
        "",
        ("max.connections.per.ip.overrides", SET, "10.0.0.1:99999999999"),
        "INVALID_REQUEST",
        'For input string: "99999999999"',
    ),
    (
        BROKER,
        "1",
        ("principal.builder.class", SET, "org.example.Missing"),
        "INVALID_REQUEST",
        "Invalid value org.example.Missing for configuration principal.builder.class: Class org.example.Missing could "
        "not be found.",
    ),
    (
        BROKER,
        "",
        ("ssl.client.auth", SET, "required"),
        "INVALID_REQUEST",
        "Cannot update these configs at default cluster level, broker id must be specified: [ssl.client.auth]",
    ),
    (
        BROKER,
        "1",
        ("min.insync.replicas", SET, "1"),
        "INVALID_CONFIG",
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    ),
    (
        BROKER,
        "",
        ("min.insync.replicas", DELETE, None),
        "INVALID_CONFIG",
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    ),
    (
        GROUP,
        "",
        ("consumer.session.timeout.ms", SET, "50000"),
        "INVALID_REQUEST",
        "Default group resources are not allowed.",
    ),
    (GROUP, "g", ("foo", SET, "1"), "INVALID_CONFIG", "Unknown group config name: foo"),
    (
        GROUP,
        "g",
        ("consumer.session.timeout.ms", SET, "abc"),
        "INVALID_CONFIG",
        NOT_INT.format("consumer.session.timeout.ms"),
    ),
    (
        GROUP,
        "g",
        ("consumer.session.timeout.ms", SET, "1"),
        "INVALID_CONFIG",
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (
        GROUP,
        "g",
        ("consumer.heartbeat.interval.ms", SET, "60000"),
        "INVALID_CONFIG",
        "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
    ),
    (METRICS, "", ("interval.ms", SET, "5000"), "INVALID_REQUEST", "Subscription name can't be empty"),
    (METRICS, "m", ("foo", SET, "1"), "INVALID_REQUEST", "Unknown client metrics configuration: foo"),
    (METRICS, "m", ("interval.ms", SET, "abc"), "INVALID_CONFIG", NOT_INT.format("interval.ms")),
    (
        METRICS,
        "m",
        ("interval.ms", SET, "1"),
        "INVALID_REQUEST",
        "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
    ),
    (METRICS, "m", ("match", SET, "a"), "INVALID_CONFIG", "Illegal client matching pattern: a"),
    (METRICS, "m", ("match", SET, "client_id=("), "INVALID_CONFIG", "Illegal client matching pattern: client_id=("),
    (METRICS, "m", ("match", SET, "foo=b"), "INVALID_CONFIG", "Illegal client matching pattern: foo=b"),
    (LOGGER, "1", ("root", SET, "INFO"), "INVALID_REQUEST", "Unknown resource type 8"),
    (99, "x", ("a", SET, "b"), "INVALID_REQUEST", "Unknown resource type 99"),
]
