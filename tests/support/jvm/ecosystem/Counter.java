import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Counts the records of "words" by key and writes every new count to "totals".
 *
 * <p>Arguments: settings as key=value. Runs until it is killed; ends with 1 if a thread of it dies.
 */
final class Counter {
  public static void main(String[] settings) {
    Properties config = new Properties();
    config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    // Without a cache every count is written, so that a reader can check each of them.
    config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    for (String setting : settings) {
      String[] pair = setting.split("=", 2);
      config.put(pair[0], pair[1]);
    }
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .<String, String>stream("words")
        .groupByKey()
        .count(Materialized.as("counts"))
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to("totals");
    KafkaStreams streams = new KafkaStreams(builder.build(), config);
    streams.setStateListener(
        (now, before) -> {
          if (now == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(1);
          }
        });
    streams.start();
  }
}
