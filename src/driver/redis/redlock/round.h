/* round.h: one try of Redlock, without I/O: votes, and the fence.
 *
 * Votes. Each of n nodes says yes or no or nothing; n/2 + 1 yes win. Two majorities share a
 * node, and that node gave its key to one of them only, until it expired or was given back.
 *
 * The fence. Every node has a mark for each bucket of names: the highest fence that it has
 * taken for one of them. A fence is given when n/2 + 1 nodes have taken it as their mark; a
 * node takes a number only while the key is ours there and its mark is lower. The first
 * candidate goes out with the request for the vote: the clock, or more than we have seen.
 * If too few take it, a second phase follows: all that voted have told their marks, the
 * next candidate is greater than all of these, and it is sent to those that said yes. That
 * is rare, because only clients that take names of one bucket at the same moment come
 * between each other.
 *   No fence of a bucket is given twice: two majorities share a node, which takes a number
 *   once.
 *   Fences grow with the grants of a name: the later holder's majority shares a node with
 *   the earlier one's, and there the key was the earlier's first. So its mark came before,
 *   and the later one's had to be greater.
 *
 * A node without marks has forgotten, and so has, perhaps, one whose marks are of an
 * earlier run of its server: those are lower bounds and no more. It takes no candidate
 * until it is seeded: by one who knows the marks of so many that every majority has one of
 * them; the candidate is greater than those. If n/2 + 1 have forgotten, it is the first
 * use, or nobody can know: they are seeded too, and fences rest on clocks then.
 *   A node is seeded for all buckets at once: else the names of a bucket that is used
 *   rarely would wait for their next grant, and could not be granted if another node fell
 *   out before that. So every node also keeps a top, no lower than any fence that it has
 *   taken for any name, and tells it with its vote. What is seeded is a floor of all marks:
 *   the highest top that the seeder knows. Every fence that the node has forgotten was
 *   taken by a majority, which has one of those tops.
 *   A node that does not count yet (it was started less than the longest ttl ago) is not
 *   seeded. A round that was under way when it forgot, and rests on what it said before, is
 *   over when it counts again; who seeds it earlier may have read the other nodes' marks
 *   before that round raised them. A round seeds a node only over the connection by which
 *   that said that it has no mark: what the round knows of the others is younger than that
 *   run of its server then. If the node has been started again since, fences may have been
 *   given with it that it has forgotten, and that the round has not heard of. */
#ifndef HF_REDIS_ROUND_H
#define HF_REDIS_ROUND_H

#include <stdbool.h>
#include <stdint.h>

enum { ROUND_NODES = 16, ROUND_RAISES = 8 };

enum round_answer { ANSWER_NONE, ANSWER_YES, ANSWER_NO, ANSWER_FAILED };

/* What a node says of its mark, as lock.lua counts them. */
enum round_mark {
    MARK_NONE,
    MARK_OLD, /* of an earlier run */
    MARK_OWN,
    MARK_TAKEN /* it has just taken the candidate */
};

struct round_node {
    bool counts; /* its vote is worth something: it has not just been started */
    enum round_answer vote, raise;
    bool
        /* it had no mark lately: its vote is waited for, so that it is given one */
        awaited;
    bool asked;  /* to raise */
    bool taken;  /* it took the first candidate with its vote */
    bool marked; /* it has told marks of its present run */
    bool blank;  /* it has told that it has none of that */
    uint64_t mark, top;
};

struct round {
    unsigned n, need;
    uint64_t least; /* of candidates */
    uint64_t candidate;
    unsigned raises; /* how often it was tried */
    bool raising;
    bool forgot; /* lost because too few nodes have a mark */
    struct round_node nodes[ROUND_NODES];
};

enum round_verdict {
    ROUND_WAITS,
    ROUND_RAISE, /* send `candidate` to every node with `asked`; blank ones may be seeded */
    ROUND_WON,   /* `candidate` is the fence */
    ROUND_LOST
};

/* candidate: the first one. Every node counts, and none is awaited, unless the caller says
 * otherwise. */
void hf__redis_round_init(struct round *, unsigned n, uint64_t candidate);
void hf__redis_round_vote(struct round *, unsigned node, enum round_answer, enum round_mark,
                          uint64_t mark, uint64_t top);
void hf__redis_round_vote_failed(struct round *, unsigned node);
/* mark: of a node that says no because its mark is not lower; -1: for another reason */
void hf__redis_round_raised(struct round *, unsigned node, enum round_answer, int64_t mark);
void hf__redis_round_cut(struct round *, unsigned i); /* its server may be started again */
void hf__redis_round_time_over(struct round *); /* whoever has not answered has failed */
enum round_verdict hf__redis_round_verdict(struct round *);
/* After it was won: is this node ours, without a mark, and may we give it the fence as one?
 * Nobody waits for that. */
bool hf__redis_round_seeds(const struct round *, unsigned node);
/* What a node without marks is seeded with, together with the candidate. */
uint64_t hf__redis_round_floor(const struct round *);
unsigned hf__redis_round_votes(const struct round *, enum round_answer); /* that count */

#endif
