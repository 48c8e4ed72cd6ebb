"""The output and the exit codes of `python -m odradek_pipeline`."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek_pipeline.cli import main

_ARGUMENTS = ["views", "counts", "--output", "/tmp/counts", "--checkpoint", "/tmp/checkpoint"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--window", "0"], "Invalid value for '--window': 0.0 is not in the range x>=0.001."),
        (["--window", "inf"], "--window must be a number of seconds, got inf"),
        (["--max-offsets", "0"], "Invalid value for '--max-offsets': 0 is not in the range x>=1."),
        (["--kafka-option", "security.protocol"], "--kafka-option must be NAME=VALUE, got 'security.protocol'"),
        (["--spark-option", "=1"], "--spark-option must be NAME=VALUE, got '=1'"),
        (["--windw", "1"], "No such option '--windw'. Did you mean '--window'?"),
        (["--output", "/tmp/checkpoint"], "output and checkpoint directory must differ, got /tmp/checkpoint for both"),
    ],
)
def test_a_wrong_option_is_a_one_line_error_and_exit_code_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*_ARGUMENTS, *options])

    assert ended.value.code == 2
    assert capsys.readouterr() == ("", f"odradek pipeline: {message}\n")


def test_reading_the_options_does_not_import_spark() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import sys, odradek_pipeline.cli; print('pyspark' in sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert found.stdout == "False\n"


def test_a_failed_start_of_spark_is_a_one_line_error_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "odradek_pipeline", *_ARGUMENTS, "--master", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    # Java writes the reason, the unknown master, before this line.
    assert done.stderr.splitlines()[-1] == (
        "odradek pipeline: cannot start Spark: "
        "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
    )


def test_ctrl_c_stops_a_job_after_its_batch_with_exit_code_0(servers: str, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(100):
        view = {"page": f"/{number % 2}", "viewed_at": f"2026-01-01T00:00:{number % 60:02}Z"}
        producer.produce("terminal", json.dumps(view))
    assert producer.flush(60) == 0
    command = [sys.executable, "-m", "odradek_pipeline", "terminal", "terminal-counts", "-b", servers]
    command += ["--output", str(tmp_path / "counts"), "--checkpoint", str(tmp_path / "checkpoint")]
    command += ["--master", "local[2]", "--trigger", "0.5"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        assert job.stdout is not None
        lines = []
        for line in job.stdout:
            # Only one signal: a second one would end the job immediately.
            if line.startswith("views #") and not any(earlier.startswith("views #") for earlier in lines):
                job.send_signal(signal.SIGINT)
            lines.append(line.rstrip())

    assert job.returncode == 0
    assert lines[0] == f"terminal -> terminal-counts, {tmp_path}/counts"
    assert lines[-1].startswith("100 records in ")
    assert lines[-1].endswith(" batches, 0 rejected, 0 too late")
