"""Summarize the records of a batch in one pass: what a broker must know to accept them.

The loop and its bounds are those of `record_codec.decode`; it is faster because it creates no records. If the summary
shows a fault, the caller decodes the records to find which one has it.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_wire.records.record_codec import read_headers, read_varint, read_varlong
from odradek_wire.records.record_errors import InvalidRecordError


class RecordSummary(NamedTuple):
    """The timestamps, keys and offsets of the records of a batch, taken together."""

    lowest_timestamp_delta: int
    highest_timestamp_delta: int
    index_of_highest: int
    """The index of the first record with the highest timestamp."""
    all_have_keys: bool
    are_consecutive: bool
    """Whether the offset deltas are 0, 1, 2 …"""


def summarize_records(data: bytes, count: int) -> RecordSummary:
    """Read exactly `count` records that fill `data` exactly. Raises InvalidRecordError for anything else."""
    end = len(data)
    position = 0
    lowest = highest = index_of_highest = 0
    all_have_keys = are_consecutive = True
    try:
        for index in range(count):
            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            record_end = position + ((number >> 1) ^ -(number & 1))
            if record_end > end or record_end < position:
                raise InvalidRecordError(f"record of {record_end - position} bytes, {end - position} are left")

            number = data[position + 1]
            position += 2
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varlong(data, position - 1)
            delta = (number >> 1) ^ -(number & 1)
            if index == 0:
                lowest = highest = delta
            elif delta > highest:
                highest = delta
                index_of_highest = index
            elif delta < lowest:
                lowest = delta

            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            if number != index << 1:
                are_consecutive = False

            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            if number & 1:
                all_have_keys = False
            else:
                position += number >> 1

            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            if not number & 1:
                position += number >> 1

            if data[position]:
                _, position = read_headers(data, position, record_end)
            else:
                position += 1
            if position != record_end:
                raise InvalidRecordError(f"record ends at byte {position}, its length says {record_end}")
    except IndexError:
        raise InvalidRecordError("records end before their batch's count is reached") from None
    if position != end:
        raise InvalidRecordError(f"{end - position} bytes follow the last record of the batch")
    return RecordSummary(lowest, highest, index_of_highest, all_have_keys, are_consecutive)
