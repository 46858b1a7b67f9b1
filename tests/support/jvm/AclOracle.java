import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's authorizer. A line on stdin is {"everyone": bool, "acls": [[resource, pattern, name,
 * principal, host, operation, permission]], "questions": [[principal, host, operation, resource,
 * name]]} with the numbers of the protocol; the answer is a line of 1 (allowed) and 0. A question
 * without a name asks for a right on any resource of the type. User:root is a super user.
 */
public final class AclOracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = json.readTree(line);
            try (StandardAuthorizer authorizer = new StandardAuthorizer()) {
                authorizer.configure(Map.of(
                        "super.users", "User:root",
                        "allow.everyone.if.no.acl.found", request.get("everyone").asText()));
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                Map<Uuid, StandardAcl> acls = new HashMap<>();
                for (JsonNode acl : request.get("acls")) {
                    acls.put(Uuid.randomUuid(), new StandardAcl(
                            ResourceType.fromCode((byte) acl.get(0).asInt()),
                            acl.get(2).asText(),
                            PatternType.fromCode((byte) acl.get(1).asInt()),
                            acl.get(3).asText(),
                            acl.get(4).asText(),
                            AclOperation.fromCode((byte) acl.get(5).asInt()),
                            AclPermissionType.fromCode((byte) acl.get(6).asInt())));
                }
                authorizer.loadSnapshot(acls);
                authorizer.completeInitialLoad();
                StringBuilder answer = new StringBuilder();
                for (JsonNode question : request.get("questions")) {
                    answer.append(ask(authorizer, question) == AuthorizationResult.ALLOWED ? '1' : '0');
                }
                System.out.println(answer);
            }
        }
    }

    private static AuthorizationResult ask(StandardAuthorizer authorizer, JsonNode question) throws Exception {
        AuthorizableRequestContext context =
                new Context(SecurityUtils.parseKafkaPrincipal(question.get(0).asText()),
                        InetAddress.getByName(question.get(1).asText()));
        AclOperation operation = AclOperation.fromCode((byte) question.get(2).asInt());
        ResourceType type = ResourceType.fromCode((byte) question.get(3).asInt());
        if (question.size() < 5) {
            return authorizer.authorizeByResourceType(context, operation, type);
        }
        ResourcePattern resource = new ResourcePattern(type, question.get(4).asText(), PatternType.LITERAL);
        return authorizer.authorize(context, List.of(new Action(operation, resource, 1, true, true))).get(0);
    }

    private record Context(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "CLIENTS";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.SASL_SSL;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
