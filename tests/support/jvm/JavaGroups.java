import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members come to a group and go: one, a second, a third, then the first leaves. After each step it
 * is waited for that the members share the partitions of TOPIC out among them.
 *
 *   TOPIC PARTITIONS RECORDS GROUP CONFIG...
 *
 * CONFIG is key=value, of the members. On stdout, as JSON: how many partitions the members had after
 * each step, how many different records were read until there were RECORDS, and the offsets that are
 * committed when all have left.
 */
public final class JavaGroups {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private final String topic;
    private final int partitions;
    private final Properties config;
    private final Set<String> seen = new ConcurrentSkipListSet<>();
    private final List<Member> members = new ArrayList<>();

    private JavaGroups(String topic, int partitions, Properties config) {
        this.topic = topic;
        this.partitions = partitions;
        this.config = config;
    }

    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.setProperty("group.id", args[3]);
        config.setProperty("auto.offset.reset", "earliest");
        for (int i = 4; i < args.length; i++) {
            int equals = args[i].indexOf('=');
            config.setProperty(args[i].substring(0, equals), args[i].substring(equals + 1));
        }
        JavaGroups group = new JavaGroups(args[0], Integer.parseInt(args[1]), config);
        System.out.println(group.run(Integer.parseInt(args[2])));
    }

    private ObjectNode run(int records) throws Exception {
        ObjectNode answer = new ObjectMapper().createObjectNode();
        ArrayNode steps = answer.putArray("steps");
        for (int count = 1; count <= 3; count++) {
            members.add(new Member("member-" + count));
            settle(steps.addArray());
        }
        members.remove(0).leave();
        settle(steps.addArray());
        until("all records are read", () -> seen.size() >= records);
        for (Member member : members) {
            member.leave();
        }
        ObjectNode committed = answer.put("seen", seen.size()).putObject("committed");
        try (KafkaConsumer<byte[], byte[]> reader = consumer("reader")) {
            Set<TopicPartition> all = new TreeSet<>((a, b) -> a.partition() - b.partition());
            for (int index = 0; index < partitions; index++) {
                all.add(new TopicPartition(topic, index));
            }
            new TreeMap<>(reader.committed(all).entrySet().stream()
                .collect(Collectors.toMap(one -> one.getKey().partition(), one -> one.getValue().offset())))
                .forEach((index, offset) -> committed.put(index.toString(), offset));
        }
        return answer;
    }

    private void settle(ArrayNode sizes) throws Exception {
        until(members.size() + " members share the partitions", () -> {
            Set<TopicPartition> union = members.stream().flatMap(one -> one.assigned.stream()).collect(Collectors.toSet());
            int sum = members.stream().mapToInt(one -> one.assigned.size()).sum();
            boolean idle = members.stream().anyMatch(one -> one.assigned.isEmpty());
            return union.size() == partitions && sum == partitions && !idle;
        });
        members.stream().map(one -> one.assigned.size()).sorted().forEach(sizes::add);
    }

    private interface Condition {
        boolean holds();
    }

    private static void until(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not in time: " + what);
            }
            Thread.sleep(20);
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String name) {
        Properties own = new Properties();
        own.putAll(config);
        own.setProperty("client.id", name);
        return new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private final class Member {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Thread thread;
        private volatile Set<TopicPartition> assigned = Set.of();

        Member(String name) {
            consumer = consumer(name);
            thread = new Thread(this::read, name);
            thread.setDaemon(true);
            thread.start();
        }

        private void read() {
            consumer.subscribe(List.of(topic));
            try (consumer) {
                while (true) {
                    consumer.poll(POLL).forEach(record -> seen.add(record.partition() + ":" + record.offset()));
                    assigned = Set.copyOf(consumer.assignment());
                }
            } catch (WakeupException leaving) {
                return;
            }
        }

        void leave() throws InterruptedException {
            consumer.wakeup();
            thread.join();
        }
    }
}
