import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own clients, for tests. Records travel as JSON lines, bytes in Base64.
 *
 *   produce TOPIC none|commit|abort CONFIG...         records on stdin, where they landed on stdout
 *   copy TOPIC TO COUNT CONFIG...                     COUNT records, one transaction for each poll
 *   consume TOPIC COUNT IDLE_MS CONFIG...             with group.id subscribes, else reads it all;
 *                                                     ~PATTERN is a pattern that the broker resolves
 *   create TOPIC COUNT CONFIG...                      TOPIC-0, TOPIC-1, ..., one after the other
 *   seek TOPIC TIMESTAMP CONFIG...                    one record of each partition, from that time on
 *   share-consume TOPIC COUNT IDLE_MS TYPE CONFIG...  acknowledges each record with TYPE
 *
 * CONFIG is key=value. Consumers end after COUNT records or IDLE_MS without one.
 */
public final class JavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        switch (args[0]) {
            case "produce" -> produce(topic, args[2], config(args, 3));
            case "copy" -> copy(topic, args[2], Integer.parseInt(args[3]), config(args, 4));
            case "consume" -> consume(topic, count(args), idle(args), config(args, 4));
            case "create" -> create(topic, count(args), config(args, 3));
            case "seek" -> seek(topic, Long.parseLong(args[2]), config(args, 3));
            case "share-consume" ->
                shareConsume(topic, count(args), idle(args), AcknowledgeType.valueOf(args[4]), config(args, 5));
            default -> throw new IllegalArgumentException(args[0]);
        }
        OUT.flush();
    }

    private static int count(String[] args) {
        return Integer.parseInt(args[2]);
    }

    private static Duration idle(String[] args) {
        return Duration.ofMillis(Long.parseLong(args[3]));
    }

    private static Properties config(String[] args, int from) {
        Properties config = new Properties();
        for (String pair : Arrays.asList(args).subList(from, args.length)) {
            int equals = pair.indexOf('=');
            config.setProperty(pair.substring(0, equals), pair.substring(equals + 1));
        }
        return config;
    }

    private static void produce(String topic, String transaction, Properties config) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ByteArraySerializer plain = new ByteArraySerializer();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, plain, plain)) {
            if (!transaction.equals("none")) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                sent.add(producer.send(outgoing(topic, JSON.readTree(line))));
            }
            producer.flush();
            if (transaction.equals("commit")) {
                producer.commitTransaction();
            } else if (transaction.equals("abort")) {
                producer.abortTransaction();
            }
        }
        for (Future<RecordMetadata> one : sent) {
            RecordMetadata at = one.get();
            OUT.println(JSON.createObjectNode()
                .put("partition", at.partition()).put("offset", at.offset()).put("timestamp", at.timestamp()));
        }
    }

    /** The producer's settings are those that begin with "producer."; the rest is the consumer's. */
    private static void copy(String topic, String to, int count, Properties config) {
        Properties sending = new Properties();
        sending.put("bootstrap.servers", config.get("bootstrap.servers"));
        config.stringPropertyNames().stream().filter(name -> name.startsWith("producer.")).forEach(name ->
            sending.put(name.substring("producer.".length()), config.remove(name)));
        config.put("enable.auto.commit", "false");
        ByteArraySerializer plain = new ByteArraySerializer();
        ByteArrayDeserializer read = new ByteArrayDeserializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(sending, plain, plain);
                KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, read, read)) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            for (int seen = 0; seen < count;) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                if (!records.isEmpty()) {
                    producer.beginTransaction();
                    records.forEach(record -> producer.send(new ProducerRecord<>(to, record.value())));
                    producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                    producer.commitTransaction();
                    seen += records.count();
                }
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> outgoing(String topic, JsonNode line) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode pair : line.get("headers")) {
            headers.add(new RecordHeader(pair.get(0).textValue(), pair.get(1).binaryValue()));
        }
        Integer partition = line.get("partition").isNull() ? null : line.get("partition").intValue();
        Long timestamp = line.get("timestamp").isNull() ? null : line.get("timestamp").longValue();
        return new ProducerRecord<>(topic, partition, timestamp,
            line.get("key").binaryValue(), line.get("value").binaryValue(), headers);
    }

    private static void consume(String topic, int count, Duration idle, Properties config) {
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, plain, plain)) {
            if (config.containsKey("group.id")) {
                if (topic.startsWith("~")) {
                    consumer.subscribe(new SubscriptionPattern(topic.substring(1)));
                } else {
                    consumer.subscribe(List.of(topic));
                }
            } else {
                List<TopicPartition> all = consumer.partitionsFor(topic).stream()
                    .map(info -> new TopicPartition(topic, info.partition())).toList();
                consumer.assign(all);
                consumer.seekToBeginning(all);
            }
            drain(count, idle, consumer::poll);
        }
    }

    private static void create(String prefix, int count, Properties config) throws Exception {
        try (Admin admin = Admin.create(config)) {
            for (int number = 0; number < count; number++) {
                NewTopic topic = new NewTopic(prefix + "-" + number, 1, (short) 1);
                admin.createTopics(List.of(topic)).all().get();
            }
        }
    }

    private static void seek(String topic, long timestamp, Properties config) {
        config.setProperty("max.poll.records", "1");
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, plain, plain)) {
            Map<TopicPartition, Long> times = consumer.partitionsFor(topic).stream()
                .collect(Collectors.toMap(info -> new TopicPartition(topic, info.partition()), info -> timestamp));
            consumer.offsetsForTimes(times).forEach((partition, found) -> {
                if (found != null) {
                    consumer.assign(List.of(partition));
                    consumer.seek(partition, found.offset());
                    drain(1, Duration.ofSeconds(10), consumer::poll);
                }
            });
        }
    }

    /**
     * Acknowledgements go with the next poll or with the close. A commit before the close would let
     * this consumer acquire once more what it released, and the next one would see a higher count.
     */
    private static void shareConsume(
            String topic, int count, Duration idle, AcknowledgeType type, Properties config) throws Exception {
        config.setProperty("share.acknowledgement.mode", "explicit");
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        List<Exception> refused = new CopyOnWriteArrayList<>();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(config, plain, plain)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    refused.add(error);
                }
            });
            consumer.subscribe(List.of(topic));
            drain(count, idle, timeout -> {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(timeout);
                records.forEach(record -> consumer.acknowledge(record, type));
                return records;
            });
        }
        if (!refused.isEmpty()) {
            throw refused.get(0);
        }
    }

    private static void drain(int count, Duration idle, Function<Duration, ConsumerRecords<byte[], byte[]>> poll) {
        int seen = 0;
        long deadline = System.nanoTime() + idle.toNanos();
        while (seen < count && System.nanoTime() < deadline) {
            ConsumerRecords<byte[], byte[]> records = poll.apply(POLL);
            records.forEach(record -> OUT.println(incoming(record)));
            seen += records.count();
            if (!records.isEmpty()) {
                deadline = System.nanoTime() + idle.toNanos();
            }
        }
    }

    private static ObjectNode incoming(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode()
            .put("partition", record.partition()).put("offset", record.offset())
            .put("timestamp", record.timestamp()).put("key", record.key()).put("value", record.value());
        record.deliveryCount().ifPresent(times -> line.put("deliveryCount", times));
        ArrayNode headers = line.putArray("headers");
        record.headers().forEach(header -> headers.addArray().add(header.key()).add(header.value()));
        return line;
    }
}
