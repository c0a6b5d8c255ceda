/* sql_lines.h: what goes wrong with the lines of a database, for every database alike; and
 * the server, its proxy and two clients, which most cases begin and end with. A case has a
 * process of its own, so the server and the proxy are global. */
#ifndef HF_TESTS_SQL_LINES_H
#define HF_TESTS_SQL_LINES_H

#include "server.h"
#include "sql_modes.h"

enum { SHORT_MS = TEST_SANITIZED ? 6000 : 3000 }; /* a ttl that ends within a test */

extern struct server server;
extern struct proxy *proxy;
extern const struct test_case sql_line_cases[];

/* ---- of each database ------------------------------------------------------------ */

void set_url(char *url, size_t size, int port, const char *params);
void make_server(void); /* not started yet: a case may add to its configuration */
void run_server(void);
void kill_server(void);
void remove_server(void);
int64_t end_sessions(void);  /* of every client of the library; returns how many */
int64_t tickets(void);       /* how many stand in the tables */
int64_t line_rows(void);     /* the same of lines */
void age_and_sweep(int64_t); /* removes lines that nobody has used for so many ms */
/* The counts of every line are those of its tickets, as schema.sql says. */
bool lines_whole(void);

/* ---- of all ---------------------------------------------------------------------- */

/* Starts `server`, after make_server, and makes it the store of this case: opened(), kids.
 */
void use_server(const char *params);
void use_plain_server(const char *params);   /* makes it, too */
void use_proxied_server(const char *params); /* with its schema; reached by `proxy` */
void done(void);                             /* ends what was started */
hf_client *opened_at(const char *url, const hf_options *);
hf_client *opened_directly(void); /* past the proxy */
void expect_refusal(const char *url, int code, const char *word);

struct two hold_and_wait(int64_t ttl_ms);
bool both_answer(struct two *);
/* Nothing was lost: still one holder and one waiter; the release admits it, with a greater
 * fence, and the line is empty in the end. */
void two_go_on(struct two *);
/* So many processes on one line; also the first ones to come, so that they make the schema.
 */
void exclude_each_other(int processes);

#endif
