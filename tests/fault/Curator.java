// Curator.java: the distribution's Curator, moved by the test over its standard input:
//
//     mutex|read|write  take PATH MS | give PATH     answers "yes", "no" or "error ..."
//
// One client; a lock belongs to the thread that took it, so everything is done by this one, and a
// take that waits keeps it. A second program waits where that matters.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;

public class Curator {
    static final Map<String, InterProcessMutex> mutexes = new HashMap<>();
    static final Map<String, InterProcessReadWriteLock> pairs = new HashMap<>();

    static InterProcessMutex find(CuratorFramework client, String kind, String path) {
        if (kind.equals("mutex"))
            return mutexes.computeIfAbsent(path, p -> new InterProcessMutex(client, p));
        InterProcessReadWriteLock pair =
            pairs.computeIfAbsent(path, p -> new InterProcessReadWriteLock(client, p));
        return kind.equals("read") ? pair.readLock() : pair.writeLock();
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            args[0], 8000, 5000, new RetryNTimes(3, 100));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        client.start();
        client.blockUntilConnected();
        System.out.println("ready");
        for (String line; (line = in.readLine()) != null;) {
            String[] word = line.split(" ");
            try {
                InterProcessMutex lock = find(client, word[0], word[2]);
                boolean done = true;
                if (word[1].equals("take"))
                    done = lock.acquire(Long.parseLong(word[3]), TimeUnit.MILLISECONDS);
                else
                    lock.release();
                System.out.println(done ? "yes" : "no");
            } catch (Exception e) {
                System.out.println("error " + e);
            }
        }
        client.close();
    }
}
