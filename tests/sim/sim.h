/* sim.h: the parts of the simulator: what each file does for the others. The structs are in
 * world.h.
 *
 * One world at a time: processes with clients (each a struct client of the core) and
 * threads, a store, a network, one true clock. Everything that happens is a step: a message
 * arrives, a timer fires, the plan acts. All of it follows from a seed, and so a run can be
 * repeated and shrunk.
 *
 * mem.c       the core's memory             world.c    clock, steps, the end of a run
 * plan.c      what shall happen             process.c  processes, clients, faults
 * driver.c    the seam: verbs               answer.c   the seam: answers become events
 * sender.c    both, for src/kit/scripted.h  ordered.c  both, for src/kit/ordered.h
 * net.c       messages, connections of      work.c     applications
 *             src/kit/link.h
 * lines.c     the reference store           order.c    its ordered family
 * scripted.c  requests of its other ones    main.c     command line, TAP
 * oracle.c    invariants                    knots.c    the one about deadlocks
 * shrink.c    a short history               tally.c    what has happened
 * wrong.c     bad input                     parts.c    a part of the store, lost and back
 * threads.c   a program of its own: two mutations of the layer with threads
 */
#ifndef HF_SIM_H
#define HF_SIM_H

#include "world.h"

/* ---- plan.c ---------------------------------------------------------------------- */
void plan_make(struct plan *, uint64_t seed);
const char *act_word(enum act_kind);

/* ---- mem.c ----------------------------------------------------------------------- */
void mem_reset(void);
void mem_drop(struct proc *);            /* the process was killed */
void mem_ticket(void *hold, bool known); /* the driver knows a ticket in this block */

/* ---- world.c --------------------------------------------------------------------- */
void run_world(const struct plan *, int mutant, bool trace);
void push_event(struct ev *);
void free_event(struct ev *);
struct ev *new_event(enum ev_kind, int64_t at);
uint64_t draw(uint64_t below);
int64_t proc_now(const struct proc *);
void touch(struct sim_client *); /* its timers may have changed */
struct snap *new_snap(void);
void free_snap(struct snap *);
bool can(const struct proc *); /* runs now */
int64_t longest_ttl(void);     /* ms */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* polls.c */
void polls_start(struct proc *);
void polls_begin(struct sim_op *);
void polls_end(struct sim_op *);

void violate(const char *id, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define SAY(...) (w.trace ? say(__VA_ARGS__) : (void)0)
#define TOK(x) ((unsigned)((x)&0xffff))

/* ---- process.c ------------------------------------------------------------------- */
void process_start(int i);
void process_fault(const struct act *);
void process_quiet(void); /* no more faults */
struct sim_client *open_client(int proc, int slot);
void close_client(struct sim_client *); /* memory, driver: everything */
void settle(struct sim_client *);       /* after anything was done with a client */

/* ---- driver.c, answer.c ---------------------------------------------------------- */
extern const struct hf_driver sim_driver;
void driver_start(struct sim_client *);
void driver_learns(struct sim_client *); /* before UP */
void driver_receive(struct sim_client *, struct msg *);
void drv_retire(struct sim_client *c, struct life *l);
int drv_ttl(int64_t ttl_ms);
struct dt *drv_known(struct sim_client *c, const struct msg *m);
void drv_session_dead(struct sim_client *c);
void drv_forget(struct sim_client *c, struct dt *d);
struct dt *drv_ticket(struct sim_client *c, const struct ticket *t);
struct msg drv_about(struct sim_client *c, enum msg_kind kind, const struct dt *d);
void drv_gone(struct sim_client *c, struct dt *d, int why);
bool drv_put_off(struct sim_client *c, struct dt *d, unsigned one_in);
void driver_tidy(struct sim_client *);
uint32_t drv_hints(const struct ticket *t);

/* ---- net.c ------------------------------------------------------------------------ */
void net_open(struct sim_client *);
void net_close(struct sim_client *);
void net_cut(struct wire *, int64_t blocked_us);
void net_silent(struct wire *, int64_t us, bool stale); /* then it breaks */
void net_up(struct wire *);                             /* it was greeted */
/* A call that is built when it is sent; NULL: there are too many. */
struct call *net_call(struct sim_client *, enum msg_kind, int line);
void net_start(struct sim_client *, struct call *);
void drv_send(struct sim_client *, struct msg *); /* a call of its own, or no call */
/* A message has come. False: of no use any more. Else, if it is an answer, its call. */
bool net_takes(struct sim_client *, const struct msg *, struct call *ret);

/* ---- ordered.c -------------------------------------------------------------------- */
int ordered_number(const struct ordered_line *); /* of the line */
void ordered_open(struct sim_client *);
void ordered_join(struct sim_client *, struct ticket *);
void ordered_amend(struct sim_client *, struct ticket *);
void ordered_renew(struct sim_client *, struct life *const *, size_t);
void ordered_joined(struct sim_client *, const struct msg *);
void ordered_left(struct sim_client *, const struct msg *);
void ordered_amended(struct sim_client *, const struct msg *);
void ordered_read(struct sim_client *, const struct msg *);
void ordered_fired(struct sim_client *, const struct msg *);
bool ordered_gave_up(const struct sim_client *, const struct msg *);

/* ---- parts.c --------------------------------------------------------------------- */
int wires(void); /* of a client */
int part_of_line(int line);
struct wire *wire_to(struct sim_client *, int line);
bool wire_has(const struct wire *, const struct msg *); /* it is of this connection */
const char *part_said(const struct wire *);
void part_cut(struct wire *, int64_t us);
void part_asked(const struct wire *); /* a join was sent to it */
void part_back(struct wire *);        /* and another part was up all the time */

/* ---- sender.c -------------------------------------------------------------------- */
bool by_scripts(void); /* the client's half is that of src/kit/scripted.h */
int sender_open(struct sim_client *);
void sender_close(struct sim_client *);
void sender_join(struct sim_client *, struct ticket *);
void sender_leave(struct sim_client *, struct ticket *);
void sender_amend(struct sim_client *, struct ticket *);
bool sender_receive(struct sim_client *, const struct msg *, const struct call *);
bool sender_build(struct sim_client *, struct call *, struct msg *);
void sender_again(struct sim_client *, const struct msg *);
void sender_nothing(struct sim_client *, const struct call *);
void sender_cut(const struct wire *);
int64_t sender_echo_us(void);
void sender_greeted(const struct msg *); /* the store was */
void sender_up(struct wire *);
void sender_understood(const struct ev *);
bool sender_gave_up(const struct sim_client *, const struct msg *);
bool sender_knows(const struct sim_client *, const struct ticket *);
void sender_joins(const struct msg *);
void free_names(struct names *); /* one of its references */

/* ---- lines.c, scripted.c, order.c ------------------------------------------------ */
uint32_t line_position(const struct line *l, const struct st *s);
int64_t line_recheck_ms(const struct line *l, const struct st *s);
struct grp *line_group(struct line *l, uint8_t id, int64_t ttl_ms, bool make);
void line_renew(struct grp *g, int64_t sent_at);
uint64_t line_fence(struct line *l);
void line_step(struct line *l);
bool line_fits(const struct line *l, int64_t weight);
void line_grant(struct line *l, struct st *s);
void line_drop(struct line *l, struct st *s);
struct st *line_find(const struct list *l, uint64_t token);
void line_tell(const struct st *s, enum msg_kind kind);
void line_clean(struct line *l);
void store_init(void);
void store_receive(struct msg *); /* answers by store_reply */
void store_reply(const struct msg *to, struct msg *answer);
void store_notify(uint8_t id, struct msg *);
void store_sweep(int line);
void store_session(uint8_t id);
void store_forget(void);
void store_process_died(uint8_t id);
struct st *store_find(int line, uint64_t token);
void store_end_hold(uint32_t rnd); /* at any moment */
void store_clock(int64_t us);      /* its wall clock is stepped by so much */
void store_done(void);
bool store_empty(void);
void order_receive(struct msg *);
void order_drop(struct line *, struct st *);
void order_cut_off(const struct sim_client *); /* its follower has all up to now */
void order_greeted(struct sim_client *);       /* watches are set again */
struct st *new_st(const struct msg *);
void free_st(struct st *);
bool st_dead(const struct st *);
int64_t sum_of(int64_t a, int64_t b);
void fill_rows(struct snap *, const struct line *, uint8_t id);

/* ---- work.c ---------------------------------------------------------------------- */
extern const struct host sim_host;
void work_act(const struct act *);
void work_release(struct sim_lease *, int64_t keep_ms);
void work_shut(struct sim_client *, uint32_t rnd);
void work_drop_client(struct sim_client *); /* ops and leases of a client that is gone */
void work_quiet(void);
void work_end_ops(struct sim_client *);
void work_done(void);
void work_drain(void); /* operations that are done are taken note of */

/* ---- oracle.c -------------------------------------------------------------------- */
void oracle_store_grant(const struct st *);
void oracle_dropped(const struct st *, const char *id);
void oracle_told(struct sim_lease *, struct hold *, bool fresh);
void oracle_released(struct hold *);
void oracle_left(const struct ticket *); /* leave is being sent */
void oracle_lease_changed(struct hf_lease *);
void oracle_gone(uint8_t id); /* all of a client */
void oracle_evicted(const struct st *);
bool oracle_was_evicted(uint64_t token); /* lately */
bool oracle_prompt(void);                /* no request is under way for long */
void oracle_forgot(void);
void oracle_early(const struct st *); /* the store's clock ends it too early */
void oracle_forked(int proc);
void oracle_line(int line);
void oracle_full(void);
void oracle_deadlock(const struct sim_op *);
void oracle_knots(void); /* deadlocks are found soon */
void oracle_links(void); /* connections are made soon */
void oracle_freed(const struct hold *, bool known);
void oracle_end_of_client(struct sim_client *);

/* ---- wrong.c --------------------------------------------------------------------- */
void wrong_act(struct sim_client *, uint32_t rnd); /* something that must be refused */

/* ---- tally.c --------------------------------------------------------------------- */
#define SIM_SIGHTS(X)                                                                      \
    X(TOLD, "grants told")                                                                 \
    X(SHARED, "of shared locks")                                                           \
    X(PERMITS, "of permits")                                                               \
    X(BARGED, "to those who may barge")                                                    \
    X(SEVERAL, "of several names at once")                                                 \
    X(LIMITED, "with max_hold")                                                            \
    X(NOT_RENEWED, "that nobody renews")                                                   \
    X(KEPT, "places kept after a release")                                                 \
    X(REENTERED, "re-entries")                                                             \
    X(LOST, "losses told")                                                                 \
    X(DEADLOCK, "deadlocks found by a walk")                                               \
    X(REFUSED_OWN, "locks refused to an owner that has them")                              \
    X(EXPIRED, "tickets expired")                                                          \
    X(WAKE_LOST, "wakes lost")                                                             \
    X(WAKE_LATE, "wakes late")                                                             \
    X(WAKE_TWICE, "wakes doubled")                                                         \
    X(BOUNCED, "requests sent again behind others")                                        \
    X(ECHO, "joins executed after the next connection was up")                             \
    X(TWICE, "requests doubled")                                                           \
    X(SLOW, "messages late by up to a ttl")                                                \
    X(OVERTAKEN, "answers overtaken by a wake")                                            \
    X(UNSENT, "requests lost")                                                             \
    X(UNHEARD, "answers lost after the effect")                                            \
    X(OLD, "requests executed after their connection broke")                               \
    X(AFTER, "joins executed after the caller gave up")                                    \
    X(REFUSED, "clients refused by the store")                                             \
    X(REFUSED_IN_LINE, "requests refused by the store")                                    \
    X(GIVEN_UP, "connections given up because an answer was late")                         \
    X(READ_LATE, "answers that were there when they were called late")                     \
    X(UNFLUSHED, "connections lost while sending")                                         \
    X(NO_ROOM, "connections given up because memory was missing")                          \
    X(OLD_READ, "reads answered by a follower that was cut off")                           \
    X(PUT_OFF, "tickets to join again after a delay")                                      \
    X(PART, "parts of the store lost")                                                     \
    X(BYE, "sessions ended by their client")                                               \
    X(STARTED, "processes started again")                                                  \
    X(CLOCK_ON, "store's clock stepped forward")                                           \
    X(CLOCK_BACK, "store's clock set back")                                                \
    X(NO_MEMORY, "allocations failed")                                                     \
    X(WRONG, "bad input refused")
enum sight {
#define HF_X(name, word) S_##name,
    SIM_SIGHTS(HF_X)
#undef HF_X
        SIGHTS
};
void tally_act(enum act_kind);
void tally_sight(enum sight);
void tally_tell(void);
bool tally_missing(void); /* names what has never happened */

/* ---- shrink.c -------------------------------------------------------------------- */
size_t shrink(struct plan *, int mutant); /* how many acts are left */

static inline int line_of(const char *name)
{
    return name[1] - '0';
}

static inline struct sim_client *client_of(struct client *c)
{
    return container_of(c, struct sim_client, core);
}

static inline void in_trouble(struct sim_client *c, int64_t until)
{
    if (until > c->trouble_at)
        c->trouble_at = until;
}

extern const char *const line_names[LINES];

#endif
