import java.io.IOException;
import java.io.OutputStream;

/**
 * Apache Kafka's broker, which also stops, cleanly, when its stdin ends: the one who started it then
 * is gone, however that came about.
 */
public final class Broker {
    public static void main(String[] args) {
        Thread watcher = new Thread(Broker::exitAfterStdin, "stdin-watcher");
        watcher.setDaemon(true);
        watcher.start();
        kafka.Kafka.main(args);
    }

    private static void exitAfterStdin() {
        try {
            System.in.transferTo(OutputStream.nullOutputStream());
        } catch (IOException broken) {
            System.err.println("stdin broke: " + broken);
        }
        System.exit(0);
    }
}
