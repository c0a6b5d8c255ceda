/* recipes.h: the recipes in the face of the case: the blocking call, or the started one and
 * its callback; and calls that are under way in the background.
 */
#ifndef HF_TESTS_RECIPES_H
#define HF_TESTS_RECIPES_H

#include "rig.h"

#include <holdfast/recipes.h>
#include <stdatomic.h>

int r_count(hf_client *, const char *name, int64_t by, int64_t *ret);
int r_next(hf_ids *, int64_t *ret);
int r_begin(hf_client *, const char *name, int64_t keep_ms, int64_t wait_ms,
            const hf_request *, hf_lease **ret);
int r_done(hf_lease *);
int r_forget(hf_client *, const char *name);
int r_rate(hf_client *, const char *name, uint32_t n, int64_t per_ms, int64_t wait_ms,
           const hf_request *);
int r_campaign(hf_client *, const char *name, const char *value, int64_t wait_ms,
               hf_lease **ret);
int r_leader(hf_client *, const char *name, hf_leader_info *ret);
int r_latch_set(hf_client *, const char *name, int64_t n);
int r_latch_down(hf_client *, const char *name, int64_t by, int64_t *left);
int r_latch_left(hf_client *, const char *name, int64_t *ret);
int r_latch_wait(hf_client *, const char *name, int64_t wait_ms, hf_cancel *);
int r_latch_clear(hf_client *, const char *name);
int r_barrier(hf_client *, const char *name, uint32_t parties, int64_t wait_ms,
              const hf_request *);

/* One of the calls that wait, in a thread of its own. */
struct later {
    enum { LATER_BEGIN, LATER_RATE, LATER_LATCH, LATER_BARRIER } what;
    hf_client *client;
    const char *name;
    uint32_t n;
    int64_t wait_ms;
    hf_request req;
    /* the result */
    int rc;
    hf_lease *lease;
    hf_error err;
    atomic_bool done;
    pthread_t thread;
};
void later_start(struct later *);
int later_end(struct later *); /* waits for it */

/* The URL of the store with another connect_timeout; store.c. */
const char *url_with(int connect_ms, char url[600]);

/* Memory that forked processes share. */
void *shared(size_t size);

/* What the recipe keeps is none of ours: a record, put or read past all recipes. */
void record_put(hf_client *, const char *name, const char *value);
bool record_is(hf_client *, const char *name, const char *value); /* NULL: there is none */

#endif
