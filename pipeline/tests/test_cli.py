"""`python -m odradek_pipeline` as a person meets it, without starting Spark."""

import subprocess
import sys

import pytest

from odradek_pipeline.cli import main

_GIVEN = ["views", "counts", "--output", "/tmp/counts", "--checkpoint", "/tmp/checkpoint"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--window", "0"], "window_ms must be positive, not 0"),
        (["--kafka-option", "security.protocol"], "--kafka-option wants NAME=VALUE, not 'security.protocol'"),
        (["--spark-option", "=1"], "--spark-option wants NAME=VALUE, not '=1'"),
        (["--windw", "1"], "No such option '--windw'. Did you mean '--window'?"),
        (["--output", "/tmp/checkpoint"], "output and checkpoint need a directory each"),
    ],
)
def test_a_wrong_option_is_one_clear_line_and_exit_code_2(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*_GIVEN, *options])

    assert ended.value.code == 2
    assert capsys.readouterr() == ("", f"odradek pipeline: {sentence}\n")


def test_the_command_line_does_not_import_spark_before_it_must() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import sys, odradek_pipeline.cli; print('pyspark' in sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert found.stdout == "False\n"
