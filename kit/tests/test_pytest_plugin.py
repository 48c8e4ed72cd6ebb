"""The pytest fixtures of Odradek in the tests of another project."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
    import pytest
    from odradek.client import Client
    from odradek.client.records import RecordProducer, read
    from odradek_wire.records.record import Record

    def topics(kafka):
        with Client(kafka.bootstrap_servers) as client:
            return {topic.name for topic in client.metadata().topics}

    addresses = set()

    @pytest.mark.parametrize("number", range(3))
    def test_each_test_finds_a_reset_broker(kafka, number):
        assert topics(kafka) == set()
        kafka.create_topic(f"orders-{number}")
        addresses.add(kafka.bootstrap_servers)
        assert len(addresses) == 1

    def test_clusters_of_the_factory(kafka_cluster):
        first = kafka_cluster(topics={"a": 1})
        second = kafka_cluster(topics={"b": 2}, config={"num.partitions": 3})
        assert (topics(first), topics(second)) == ({"a"}, {"b"})
"""


def test_a_session_has_one_broker_that_is_reset_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)


def test_the_next_test_has_no_settings_clock_or_faults_of_the_last(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import time

        import pytest
        from odradek.client import Client
        from odradek.client.records import RecordProducer, read
        from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest as Request
        from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse as Response
        from odradek_wire.records.record import Record

        BROKER, SET = 4, 0
        HOUR_MS = 3_600_000

        @pytest.mark.parametrize("number", range(2))
        def test_it(kafka, number):
            kafka.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
            with Client(kafka.bootstrap_servers) as client:
                writer = RecordProducer(client, "stamped")
                writer.write(Record(0, 0, None, b"x" * 2000))
                writer.flush()
                (found,) = read(client, "stamped", {0: 0}, ends={0: 1})
                assert abs(found.record.timestamp - time.time() * 1000) < HOUR_MS
                setting = Request.AlterableConfig("message.max.bytes", SET, "1000")
                wanted = Request([Request.AlterConfigsResource(BROKER, "", [setting])])
                assert client.call(wanted, Response).responses[0].error_code == 0
            kafka.advance(wall_ms=24 * HOUR_MS)
            kafka.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED")
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_each_worker_of_xdist_has_its_own_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider").assert_outcomes(passed=4)


def test_kafka_config_in_a_conftest_configures_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def kafka_config():
            return {"auto.create.topics.enable": False, "num.partitions": 4}
        """
    )
    pytester.makepyfile(
        """
        from odradek.client import Client

        def test_it(kafka):
            kafka.create_topic("a", partitions=-1)
            with Client(kafka.bootstrap_servers) as client:
                assert len(client.topic("a").partitions) == 4
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_report_of_a_failed_test_has_the_brokers_log(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import socket

        def test_it(kafka):
            host, _, port = kafka.bootstrap_servers.partition(":")
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
                assert connection.recv(1) == b""
            assert False
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Log of the Kafka broker*", "*warning*127.0.0.1*"])


def test_a_suite_without_the_fixtures_does_not_import_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            assert not {"odradek_broker", "odradek.cluster", "uvloop", "structlog"} & set(sys.modules)
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:asyncio").assert_outcomes(passed=1)
