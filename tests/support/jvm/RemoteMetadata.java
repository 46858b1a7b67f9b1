import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/**
 * Kafka's own remote log metadata manager, as one of the brokers that share a metadata topic.
 *
 * <p>Arguments: bootstrap servers, partitions of the metadata topic, a directory, topic id, topic,
 * partition. Lines of standard input are carried out, once the partition is ready: "add ID START END
 * EPOCH:START,...", "update ID STATE CUSTOM" (a dash for no custom metadata), "list". A list is one
 * line of output for each segment, "ID START END EPOCHS SIZE STATE CUSTOM", and one that says "end".
 */
public final class RemoteMetadata {
    private static final int BROKER = 9;
    private static final long DEADLINE_MS = 60_000;

    public static void main(String[] args) throws Exception {
        TopicIdPartition partition =
            new TopicIdPartition(
                Uuid.fromString(args[3]), new TopicPartition(args[4], Integer.parseInt(args[5])));
        try (var manager = new TopicBasedRemoteLogMetadataManager()) {
            manager.configure(
                Map.of(
                    "remote.log.metadata.common.client.bootstrap.servers", args[0],
                    "remote.log.metadata.topic.num.partitions", args[1],
                    "remote.log.metadata.topic.replication.factor", "1",
                    "remote.log.metadata.topic.min.isr", "1",
                    "log.dir", args[2],
                    "broker.id", Integer.toString(BROKER)));
            manager.onBrokerReady();
            manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (!manager.isReady(partition)) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(partition + " does not become ready");
                }
                Thread.sleep(10);
            }
            Scanner input = new Scanner(System.in);
            while (input.hasNextLine()) {
                carryOut(manager, partition, input.nextLine().split(" "));
            }
        }
    }

    private static void carryOut(
            TopicBasedRemoteLogMetadataManager manager, TopicIdPartition partition, String[] words)
            throws Exception {
        switch (words[0]) {
            case "add" -> {
                Map<Integer, Long> epochs = new TreeMap<>();
                for (String pair : words[4].split(",")) {
                    String[] parts = pair.split(":");
                    epochs.put(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
                }
                long start = Long.parseLong(words[2]);
                long end = Long.parseLong(words[3]);
                manager
                    .addRemoteLogSegmentMetadata(
                        new RemoteLogSegmentMetadata(
                            id(partition, words[1]), start, end, end, BROKER, 1, 1000, epochs))
                    .get();
            }
            case "update" -> manager
                .updateRemoteLogSegmentMetadata(
                    new RemoteLogSegmentMetadataUpdate(
                        id(partition, words[1]),
                        2,
                        custom(words[3]),
                        RemoteLogSegmentState.valueOf(words[2]),
                        BROKER))
                .get();
            case "list" -> {
                manager.listRemoteLogSegments(partition).forEachRemaining(RemoteMetadata::print);
                System.out.println("end");
                System.out.flush();
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static RemoteLogSegmentId id(TopicIdPartition partition, String text) {
        return new RemoteLogSegmentId(partition, Uuid.fromString(text));
    }

    private static Optional<CustomMetadata> custom(String hex) {
        return hex.equals("-")
            ? Optional.empty()
            : Optional.of(new CustomMetadata(HexFormat.of().parseHex(hex)));
    }

    private static void print(RemoteLogSegmentMetadata one) {
        StringBuilder epochs = new StringBuilder();
        one.segmentLeaderEpochs()
            .forEach((epoch, start) -> epochs.append(epoch).append(':').append(start).append(','));
        System.out.println(
            String.join(
                " ",
                one.remoteLogSegmentId().id().toString(),
                Long.toString(one.startOffset()),
                Long.toString(one.endOffset()),
                epochs,
                Integer.toString(one.segmentSizeInBytes()),
                one.state().name(),
                one.customMetadata().map(it -> HexFormat.of().formatHex(it.value())).orElse("-")));
    }
}
