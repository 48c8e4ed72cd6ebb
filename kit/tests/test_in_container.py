"""The address to which the health check of a container connects."""

from __future__ import annotations

import pytest

from odradek.cli.in_container import own_address


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "localhost:9092"),
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://example:29092"}, "localhost:9092"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://broker:29092"}, "broker:29092"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://[::]:7000"}, "localhost:7000"),
        (
            {
                "KAFKA_LISTENERS": "CONTROLLER://:9093,OUTSIDE://0.0.0.0:9094",
                "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
                "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,OUTSIDE:PLAINTEXT",
            },
            "localhost:9094",
        ),
    ],
)
def test_the_health_check_finds_the_listener_of_the_variables(variables: dict[str, str], address: str) -> None:
    assert own_address(variables) == address


def test_variables_without_a_listener_for_clients_are_refused() -> None:
    variables = {"KAFKA_LISTENERS": "CONTROLLER://:9093", "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER"}
    with pytest.raises(ValueError, match="add a listener for clients"):
        own_address(variables)
