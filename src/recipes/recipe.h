/* recipe.h: what the recipes have in common: how a call is made of a composite operation,
 * and the form of their cells.
 *
 * A cell of a recipe is a word, which says whose it is, and decimal numbers: "latch 3 10".
 * A counter is a number alone, as the verb ADD has it. So no recipe takes another's cell
 * for its own, and ADD refuses all but counters. */
#ifndef HF_RECIPES_RECIPE_H
#define HF_RECIPES_RECIPE_H

#include "api/composite.h"

#include <holdfast/recipes.h>

/* The arguments of a call, as its recipe needs them. */
struct recipe_args {
    const char *name, *value;
    int64_t number; /* by, n, keep_ms */
    int64_t per_ms;
    int64_t wait_ms;
    const hf_request *req;
    hf_cancel *cancel;
    const hf_leader_info *known;
    bool blocking;
    void *of; /* a handle of the recipe */
};

/* Checks the arguments and makes the operation, which is not started yet; NULL: err says
 * why. */
typedef struct composite *hf__recipe(hf_client *, const struct recipe_args *,
                                     const struct listener *, hf_error *);

/* The two forms of a call: both start the same operation. number and lease may be NULL. */
int hf__recipe_call(hf_client *, hf__recipe *, struct recipe_args, int64_t *number,
                    hf_lease **lease, hf_error *);
int hf__recipe_start(hf_client *, hf__recipe *, struct recipe_args, hf_done *, void *user,
                     hf_op **ret, hf_error *);

/* A request for an exclusive lock, or for one of `permits` if that is not 0, on a store
 * that can do what the recipe needs. HF_EINVAL: it asks for something else. */
int hf__recipe_request(hf_client *, const struct recipe_args *, uint32_t permits,
                       uint32_t needs, struct acquire_spec *, hf_error *);

/* Copies it with its note, for which there is room. */
void hf__recipe_keep_request(struct acquire_spec *to, const struct acquire_spec *from,
                             char note[HF_NOTE_MAX + 1]);

enum { RECORD_MOST = 3 };
/* Pure. True: the cell is of this form. */
bool hf__recipe_read(const struct cell *, const char *tag, uint64_t *numbers, size_t n);
bool hf__recipe_number(const struct cell *, int64_t *); /* a counter; absent: 0 */
void hf__recipe_write(struct cell *, const char *tag, const uint64_t *numbers, size_t n);
/* The cell belongs to another recipe: ends the operation. */
void hf__recipe_refuse(struct composite *, const struct cell *);

/* The end of an operation whose request about its cell has failed. */
void hf__recipe_cell_failed(struct composite *, const struct cell_part *);

/* An ADD is done, or a CELL_GET of a counter: 0 with the number, else it has ended the
 * operation. */
int hf__recipe_counted(struct composite *, const struct cell_part *, int64_t *ret);

/* Removes a cell with this tag: hf_once_forget, hf_latch_clear. */
struct composite *hf__recipe_remove(hf_client *, const struct recipe_args *,
                                    const struct listener *, hf_error *);

#endif
