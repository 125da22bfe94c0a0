import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Kafka's command-line tools, one after another in one process, since a Java that starts costs more than a command.
 *
 * <p>A line on standard input is a class and its arguments, separated by the character 31. The answer on standard
 * output is a line with the exit status and the number of bytes that the tool printed on both of its outputs, and
 * these bytes. The end of the input ends the process.
 */
public final class Tools {
  /** Of the thread's command: what a thread logs that outlives its command is not the next one's. */
  private static final InheritableThreadLocal<ByteArrayOutputStream> PRINTED =
      new InheritableThreadLocal<>() {
        @Override
        protected ByteArrayOutputStream initialValue() {
          return new ByteArrayOutputStream();
        }
      };

  private static Integer status;

  private static final class Ended extends Error {}

  private static final class Routed extends OutputStream {
    @Override
    public void write(int one) {
      PRINTED.get().write(one);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) {
      PRINTED.get().write(bytes, offset, length);
    }
  }

  public static void main(String[] unused) throws Exception {
    PrintStream answers = System.out;
    // The same stream for all commands: the appender of the log keeps the one that it finds.
    PrintStream output = new PrintStream(new Routed(), true, StandardCharsets.UTF_8);
    System.setOut(output);
    System.setErr(output);
    Exit.setExitProcedure(Tools::end);
    Exit.setHaltProcedure(Tools::end);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] words = line.split("\u001f", -1);
      ByteArrayOutputStream printed = new ByteArrayOutputStream();
      PRINTED.set(printed);
      status = null;
      try {
        Object arguments = Arrays.copyOfRange(words, 1, words.length);
        Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
      } catch (InvocationTargetException thrown) {
        if (status == null) {
          thrown.getCause().printStackTrace();
          status = 1;
        }
      }
      byte[] bytes = printed.toByteArray();
      answers.printf("%d %d%n", status == null ? 0 : status, bytes.length);
      answers.write(bytes);
      answers.flush();
    }
    System.exit(0);
  }

  private static void end(int statusCode, String message) {
    // A tool that catches everything may end once more.
    status = status == null ? statusCode : status;
    throw new Ended();
  }
}
