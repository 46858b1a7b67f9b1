import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.Scanner;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Names of certificates as Java and Kafka have them.
 *
 * <p>Lines of standard input, with base64 in place of texts: "subject DER" prints the subject of a
 * certificate, "map RULES NAME" what mapping rules make of a name. A line that fails prints "!" and
 * the exception.
 */
public final class Names {
    public static void main(String[] args) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", -1);
            try {
                String answer;
                if (words[0].equals("subject")) {
                    byte[] der = Base64.getDecoder().decode(words[1]);
                    var read = factory.generateCertificate(new ByteArrayInputStream(der));
                    answer = ((X509Certificate) read).getSubjectX500Principal().getName();
                } else {
                    answer = SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
                }
                byte[] encoded = answer.getBytes(StandardCharsets.UTF_8);
                System.out.println("=" + Base64.getEncoder().encodeToString(encoded));
            } catch (Exception error) {
                System.out.println("!" + error.getClass().getName());
            }
        }
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }
}
