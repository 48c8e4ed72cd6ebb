"""Record data: batches of magic 2, message sets of magic 0 and 1, what is inside them and how one becomes the other.

`batch` frames and patches, `records` looks inside, `builder` makes, `legacy` and `conversion` serve old clients,
`log_validator` is what a broker asks of a producer. Modules are imported one by one; this package itself brings in only
the names below.
"""

from odradek_wire.records.batch import RecordBatchHeader
from odradek_wire.records.record import Record
from odradek_wire.records.record_errors import CorruptRecordError, InvalidRecordError, UnsupportedRecordsError

__all__ = ["CorruptRecordError", "InvalidRecordError", "Record", "RecordBatchHeader", "UnsupportedRecordsError"]
