"""Record data: batches of magic 2, message sets of magic 0 and 1, and the records in them.

`batch` reads and patches batch headers, `record_codec` decodes and encodes records, `builder` builds batches, `legacy`
and `conversion` serve old clients, `log_validator` validates what producers send. Import each module by name; the
package itself exports only the names below.
"""

from odradek_wire.records.batch import RecordBatchHeader
from odradek_wire.records.record import Record
from odradek_wire.records.record_errors import CorruptRecordError, InvalidRecordError, UnsupportedRecordsError

__all__ = ["CorruptRecordError", "InvalidRecordError", "Record", "RecordBatchHeader", "UnsupportedRecordsError"]
