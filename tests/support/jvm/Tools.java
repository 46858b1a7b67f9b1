import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, one after the other in one JVM, as most of a tool's time goes into
 * starting its own. A line on stdin is {"main": class, "args": [...], "stdin": text}, the answer a
 * line on stdout: {"status": number, "stdout": text, "stderr": text}.
 *
 * Each run loads the tool's classes anew, from the places named by the arguments, since some count in
 * static fields; the client library is shared. Leaving by Exit ends the run, not the JVM, and the
 * thread stays there for ever, as no tool expects Exit to return. Then come the shutdown hooks that
 * the tool has set.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        InputStream requests = System.in;
        URL[] jars = new URL[args.length];
        for (int i = 0; i < args.length; i++) {
            jars[i] = Path.of(args[i]).toUri().toURL();
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(requests, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.println(run(jars, JSON.readTree(line)));
            answers.flush();
        }
    }

    private static String run(URL[] jars, JsonNode request) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(request.get("stdin").textValue().getBytes(StandardCharsets.UTF_8)));
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        List<String> args = new ArrayList<>();
        request.get("args").forEach(arg -> args.add(arg.textValue()));
        CompletableFuture<Integer> ended = new CompletableFuture<>();
        Exit.Procedure leave = (status, message) -> {
            ended.complete(status);
            LockSupport.park();
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        Thread thread = new Thread(() -> {
            ended.complete(call(jars, request.get("main").textValue(), args));
        }, "tool");
        thread.setDaemon(true);
        thread.start();
        int status = ended.get();
        hooks.forEach(Runnable::run);
        return JSON.createObjectNode().put("status", status)
            .put("stdout", out.toString(StandardCharsets.UTF_8))
            .put("stderr", err.toString(StandardCharsets.UTF_8)).toString();
    }

    private static int call(URL[] jars, String main, List<String> args) {
        ToolLoader loader = new ToolLoader(jars);
        Thread.currentThread().setContextClassLoader(loader);
        try {
            loader.loadClass(main).getMethod("main", String[].class).invoke(null, (Object) args.toArray(new String[0]));
            return 0;
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace();
        } catch (ReflectiveOperationException unknown) {
            unknown.printStackTrace();
        }
        return 1;
    }

    /** Takes what it can from its own jars, the rest from where this class is. */
    private static final class ToolLoader extends URLClassLoader {
        ToolLoader(URL[] jars) {
            super(jars, Tools.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                if (found != null) {
                    return found;
                }
                if (findResource(name.replace('.', '/') + ".class") != null) {
                    return findClass(name);
                }
                return super.loadClass(name, resolve);
            }
        }
    }
}
