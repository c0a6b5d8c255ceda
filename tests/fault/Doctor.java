// Doctor.java: changes what a server remembers while it does not run.
//
//     FOLDER number PATH N     the next sequential child of PATH gets N: as if so many had been there
//     FOLDER forget            no session, and nothing that belongs to one
import java.io.File;
import java.util.ArrayList;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.ZKDatabase;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

public class Doctor {
    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        FileTxnSnapLog store = new FileTxnSnapLog(folder, folder);
        ZKDatabase memory = new ZKDatabase(store);
        memory.loadDataBase();
        DataTree tree = memory.getDataTree();
        ConcurrentHashMap<Long, Integer> sessions = memory.getSessionWithTimeOuts();
        if (args[1].equals("number")) {
            tree.getNode(args[2]).stat.setCversion(Integer.parseInt(args[3]));
        } else {
            for (Long session : new ArrayList<>(memory.getSessions()))
                memory.killSession(session, tree.lastProcessedZxid);
            sessions.clear();
        }
        store.save(tree, sessions, true);
        store.close();
    }
}
