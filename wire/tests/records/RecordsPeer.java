import java.io.*;
import java.nio.*;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.record.internal.*; // 3.9 has these in the package above; the test replaces the name

/** Runs Kafka's own record classes: reads a command from each line of standard input, and writes a line for each. */
public class RecordsPeer {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = "ok " + answer(words);
            } catch (Throwable error) {
                Throwable cause = error instanceof java.lang.reflect.InvocationTargetException ? error.getCause() : error;
                answer = "error " + cause.getClass().getSimpleName() + " " + String.valueOf(cause.getMessage()).replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "read":
                return describe(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(words[1]))));
            case "file":
                try (FileRecords file = FileRecords.open(new File(words[1]))) {
                    return describe(file);
                }
            case "write":
                return hex(write(words));
            case "down": {
                Records records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(words[1])));
                Object converted = records.getClass().getMethod("downConvert", byte.class, long.class, Time.class)
                    .invoke(records, Byte.parseByte(words[2]), Long.parseLong(words[3]), Time.SYSTEM);
                return hex(((MemoryRecords) converted.getClass().getMethod("records").invoke(converted)).buffer());
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Batches separated by ';', each its header and then its records, separated by '|'. */
    static String describe(Records records) {
        StringJoiner batches = new StringJoiner(";");
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            StringJoiner parts = new StringJoiner("|");
            parts.add(batch.magic() + "," + batch.baseOffset() + "," + batch.lastOffset() + "," + batch.compressionType().id
                + "," + batch.timestampType().id + "," + batch.maxTimestamp() + "," + batch.producerId()
                + "," + batch.producerEpoch() + "," + batch.baseSequence() + "," + batch.isTransactional()
                + "," + batch.isControlBatch() + "," + batch.partitionLeaderEpoch());
            for (org.apache.kafka.common.record.internal.Record record : batch) {
                record.ensureValid();
                StringJoiner headers = new StringJoiner("&");
                for (Header header : record.headers())
                    headers.add(hex(ByteBuffer.wrap(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8)))
                        + "=" + (header.value() == null ? "-" : hex(ByteBuffer.wrap(header.value()))));
                parts.add(record.offset() + "," + record.timestamp() + "," + hex(record.key()) + "," + hex(record.value())
                    + "," + headers);
            }
            batches.add(parts.toString());
        }
        return batches.toString();
    }

    /** write magic codec timestampType appendTime baseOffset producerId epoch sequence transactional leaderEpoch records */
    static ByteBuffer write(String[] words) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 16), Byte.parseByte(words[1]),
            Compression.of(CompressionType.forId(Integer.parseInt(words[2]))).build(),
            TimestampType.forName(words[3]), Long.parseLong(words[5]), Long.parseLong(words[4]),
            Long.parseLong(words[6]), Short.parseShort(words[7]), Integer.parseInt(words[8]),
            Boolean.parseBoolean(words[9]), Integer.parseInt(words[10]));
        for (String record : words[11].split("\\|")) {
            String[] fields = record.split(",", -1);
            List<Header> headers = new ArrayList<>();
            if (!fields[4].isEmpty())
                for (String header : fields[4].split("&")) {
                    String[] pair = header.split("=", -1);
                    headers.add(new RecordHeader(new String(bytes(pair[0]), java.nio.charset.StandardCharsets.UTF_8), bytes(pair[1])));
                }
            builder.appendWithOffset(Long.parseLong(fields[0]), Long.parseLong(fields[1]), bytes(fields[2]), bytes(fields[3]),
                headers.toArray(new Header[0]));
        }
        return builder.build().buffer();
    }

    static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HexFormat.of().parseHex(hex);
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "-";
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return HexFormat.of().formatHex(content);
    }
}
