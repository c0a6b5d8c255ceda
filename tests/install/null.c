/* null.c URL: every public call with NULL where a handle or a text belongs: an error or
 * nothing, never a crash, and whatever is there stays as it is. tests/install/run compiles
 * it, and says which function is missing here.
 */
#include <holdfast/async.h>
#include <holdfast/recipes.h>
#include <holdfast/tool.h>
#include <stdio.h>
#include <string.h>

static int bad;

#define IS(call, wanted)                                                                   \
    do {                                                                                   \
        long long got = (long long)(call);                                                 \
        if (got != (wanted)) {                                                             \
            printf("%s: %lld instead of %lld\n", #call, got, (long long)(wanted));         \
            bad = 1;                                                                       \
        }                                                                                  \
    } while (0)
#define REFUSED(call) IS(call, HF_EINVAL)

static hf_error err;

static void done(hf_op *op, int rc, hf_lease *lease, const hf_error *e, void *user)
{
    (void)op, (void)rc, (void)lease, (void)e, (void)user;
}

static void seen(hf_op *op, int rc, const hf_list *list, const hf_error *e, void *user)
{
    (void)op, (void)rc, (void)list, (void)e, (void)user;
}

static void changed(hf_lease *lease, int state, void *user)
{
    (void)lease, (void)state, (void)user;
}

static int body(hf_lease *lease, void *user)
{
    (void)lease, (void)user;
    return 0;
}

static void without_a_client(void)
{
    const char *name = "a";
    hf_lease *lease = NULL;
    hf_list *list = NULL;
    hf_op *op = NULL;

    hf_close(NULL);
    REFUSED(hf_acquire(NULL, name, 0, NULL, &lease, &err));
    REFUSED(hf_acquire_all(NULL, &name, 1, 0, NULL, &lease, &err));
    REFUSED(hf_acquire_start(NULL, name, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_acquire_all_start(NULL, &name, 1, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_with(NULL, name, 0, NULL, body, NULL, NULL, &err));
    REFUSED(hf_look(NULL, name, &list, &err));
    REFUSED(hf_ls(NULL, NULL, 0, &list, &err));
    REFUSED(hf_evict(NULL, name, "x", 0, &err));
    REFUSED(hf_watch_start(NULL, name, seen, NULL, &op, &err));
    REFUSED(hf_look_start(NULL, name, seen, NULL, &op, &err));
    REFUSED(hf_ls_start(NULL, "", 0, seen, NULL, &op, &err));
    REFUSED(hf_evict_start(NULL, name, "x", 0, done, NULL, &op, &err));
    REFUSED(hf_name_state(NULL, name, &err));
    REFUSED(hf_name_state_start(NULL, name, done, NULL, &op, &err));
    REFUSED(hf_connect(NULL, 0, &err));
    REFUSED(hf_connect_start(NULL, 0, done, NULL, &op, &err));
    REFUSED(hf_keep_renew(NULL, name, "x", 1000, &err));
    REFUSED(hf_keep_orphan(NULL, name, "x", 1000, &err));
    REFUSED(hf_client_stop(NULL));
    REFUSED(hf_client_fd(NULL));
    REFUSED(hf_client_process(NULL));
    REFUSED(hf_client_wait(NULL, 0));
    REFUSED(hf_client_life_fds(NULL, NULL, 0));
    IS(hf_client_caps(NULL), 0);
    IS(hf_client_ttl_ms(NULL), 0);
    IS(hf_client_url(NULL) != NULL, 0);
    IS(lease || list || op, 0);
}

static void without_a_lease(void)
{
    char text[64];
    hf_op *op = NULL;

    IS(hf_release(NULL, &err), 0);
    REFUSED(hf_release_after(NULL, 1000, &err));
    REFUSED(hf_release_start(NULL, done, NULL, &op, &err));
    REFUSED(hf_lease_check(NULL));
    REFUSED(hf_lease_state(NULL));
    IS(hf_lease_remaining_ms(NULL), 0);
    IS(hf_lease_fence(NULL), 0);
    IS(hf_lease_fence_of(NULL, "a"), 0);
    IS(hf_lease_name(NULL) != NULL, 0);
    REFUSED(hf_lease_fd(NULL, &err));
    REFUSED(hf_lease_on_change(NULL, changed, NULL, &err));
    REFUSED(hf_lease_renew(NULL, 0, &err));
    REFUSED(hf_lease_downgrade(NULL, &err));
    REFUSED(hf_lease_note(NULL, "x", &err));
    REFUSED(hf_lease_adopt(NULL, 1, &err));
    REFUSED(hf_lease_wait(NULL, 0, &err));
    REFUSED(hf_lease_mode(NULL));
    IS(hf_lease_ttl_ms(NULL), 0);
    IS(hf_lease_count(NULL), 0);
    IS(hf_lease_permits(NULL), 0);
    IS(hf_lease_name_at(NULL, 0) != NULL, 0);
    IS(hf_lease_ticket(NULL) != NULL, 0);
    IS(hf_lease_ticket_at(NULL, 0) != NULL, 0);
    REFUSED(hf_release_after_start(NULL, 1000, done, NULL, &op, &err));
    REFUSED(hf_renew_start(NULL, 0, done, NULL, &op, &err));
    REFUSED(hf_note_start(NULL, "x", done, NULL, &op, &err));
    REFUSED(hf_downgrade_start(NULL, done, NULL, &op, &err));
    REFUSED(hf_lease_owner(NULL, text, sizeof text));
    IS(op != NULL, 0);
}

static void without_anything_else(void)
{
    hf_client *client = NULL;
    char *text = NULL;

    hf_op_cancel(NULL);
    hf_op_free(NULL);
    REFUSED(hf_op_position(NULL, NULL, NULL));
    hf_cancel_fire(NULL);
    hf_cancel_reset(NULL);
    hf_cancel_free(NULL);
    hf_list_free(NULL);
    REFUSED(hf_cancel_new(NULL, &err));
    REFUSED(hf_open(NULL, NULL, &client, &err));
    REFUSED(hf_open("local:", NULL, NULL, &err));
    REFUSED(hf_preload(NULL, &err));
    REFUSED(hf_backend_at(0, NULL));
    REFUSED(hf_admin_text(NULL, &text, &err));
    REFUSED(hf_admin_text("local:", NULL, &err));
    IS(text != NULL, 0);
    IS(client != NULL, 0);
    IS(hf_list_count(NULL), 0);
    IS(hf_list_at(NULL, 0) != NULL, 0);
    REFUSED(hf_line_mode(NULL));
    IS(hf_line_name(NULL) != NULL, 0);
    IS(hf_line_capacity(NULL), 0);
    IS(hf_line_holders(NULL), 0);
    IS(hf_line_waiters(NULL), 0);
    IS(hf_line_oldest_ms(NULL), -1);
    IS(hf_line_tickets(NULL), 0);
    IS(hf_line_ticket(NULL, 0) != NULL, 0);
    IS(hf_ticket_id(NULL) != NULL, 0);
    IS(hf_ticket_fence(NULL), 0);
    IS(hf_ticket_position(NULL), 0);
    REFUSED(hf_ticket_mode(NULL));
    IS(hf_ticket_permits(NULL), 0);
    IS(hf_ticket_owner(NULL) != NULL, 0);
    IS(hf_ticket_host(NULL) != NULL, 0);
    IS(hf_ticket_pid(NULL), 0);
    IS(hf_ticket_age_ms(NULL), -1);
    IS(hf_ticket_expires_ms(NULL), -1);
    IS(hf_ticket_broken(NULL), 0);
    IS(hf_ticket_kept(NULL), 0);
    IS(hf_ticket_note(NULL) != NULL, 0);
}

/* The handle is there, the rest is not. */
static void half(hf_client *c, hf_lease *l)
{
    const char *names[2] = { "b", NULL };
    hf_lease *lease = NULL;
    hf_list *list = NULL;
    hf_op *op = NULL;

    REFUSED(hf_acquire(c, NULL, 0, NULL, &lease, &err));
    REFUSED(hf_acquire(c, "b", 0, NULL, NULL, &err));
    REFUSED(hf_acquire(c, NULL, 0, NULL, &lease, NULL));
    REFUSED(hf_acquire_all(c, NULL, 2, 0, NULL, &lease, &err));
    REFUSED(hf_acquire_all(c, names, 2, 0, NULL, &lease, &err));
    REFUSED(hf_acquire_all(c, names, 1, 0, NULL, NULL, &err));
    REFUSED(hf_acquire_start(c, NULL, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_acquire_start(c, "b", 0, NULL, NULL, NULL, &op, &err));
    REFUSED(hf_acquire_start(c, "b", 0, NULL, done, NULL, NULL, &err));
    REFUSED(hf_acquire_all_start(c, NULL, 2, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_acquire_all_start(c, names, 2, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_with(c, NULL, 0, NULL, body, NULL, NULL, &err));
    REFUSED(hf_with(c, "b", 0, NULL, NULL, NULL, NULL, &err));
    REFUSED(hf_look(c, NULL, &list, &err));
    REFUSED(hf_look(c, "a", NULL, &err));
    REFUSED(hf_ls(c, NULL, 0, NULL, &err));
    REFUSED(hf_evict(c, NULL, "x", 0, &err));
    REFUSED(hf_evict(c, "a", NULL, 0, &err));
    REFUSED(hf_watch_start(c, NULL, seen, NULL, &op, &err));
    REFUSED(hf_watch_start(c, "a", NULL, NULL, &op, &err));
    REFUSED(hf_watch_start(c, "a", seen, NULL, NULL, &err));
    IS(hf_client_life_fds(c, NULL, 0) >= 0, 1);
    IS(hf_lease_fence_of(l, NULL), 0);
    IS(hf_lease_owner(l, NULL, 0) > 0, 1);
    IS(hf_lease_on_change(l, NULL, NULL, NULL), 0);
    IS(lease || list || op, 0);
}

static void led(hf_op *op, int rc, const hf_leader_info *info, const hf_error *e,
                void *user)
{
    (void)op, (void)rc, (void)info, (void)e, (void)user;
}

/* c: NULL, or a client; then the name is. */
static void recipes_without(hf_client *c, const char *name)
{
    hf_leader_info info;
    hf_lease *lease = NULL;
    hf_ids *ids = NULL;
    hf_op *op = NULL;
    int64_t n = 0;

    REFUSED(hf_count(c, name, 1, &n, &err));
    REFUSED(hf_count_start(c, name, 1, done, NULL, &op, &err));
    REFUSED(hf_ids_open(c, name, 1, &ids, &err));
    REFUSED(hf_once(c, name, 0, 0, NULL, body, NULL, NULL, &err));
    REFUSED(hf_once_begin(c, name, 0, 0, NULL, &lease, &err));
    REFUSED(hf_once_begin_start(c, name, 0, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_once_forget(c, name, &err));
    REFUSED(hf_once_forget_start(c, name, done, NULL, &op, &err));
    REFUSED(hf_rate(c, name, 1, 1000, 0, NULL, &err));
    REFUSED(hf_rate_start(c, name, 1, 1000, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_campaign(c, name, NULL, 0, NULL, &lease, &err));
    REFUSED(hf_campaign_start(c, name, NULL, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_leader(c, name, &info, &err));
    REFUSED(hf_leader_start(c, name, led, NULL, &op, &err));
    REFUSED(hf_observe(c, name, NULL, 0, NULL, &info, &err));
    REFUSED(hf_observe_start(c, name, led, NULL, &op, &err));
    REFUSED(hf_latch_set(c, name, 1, &err));
    REFUSED(hf_latch_set_start(c, name, 1, done, NULL, &op, &err));
    REFUSED(hf_latch_down(c, name, 1, &n, &err));
    REFUSED(hf_latch_down_start(c, name, 1, done, NULL, &op, &err));
    REFUSED(hf_latch_wait(c, name, 0, NULL, &err));
    REFUSED(hf_latch_wait_start(c, name, 0, NULL, done, NULL, &op, &err));
    REFUSED(hf_latch_left(c, name, &n, &err));
    REFUSED(hf_latch_left_start(c, name, done, NULL, &op, &err));
    REFUSED(hf_latch_clear(c, name, &err));
    REFUSED(hf_latch_clear_start(c, name, done, NULL, &op, &err));
    REFUSED(hf_barrier(c, name, 1, 0, NULL, &err));
    REFUSED(hf_barrier_start(c, name, 1, 0, NULL, done, NULL, &op, &err));
    IS(op != NULL || lease != NULL || ids != NULL, 0);
}

static void recipes(hf_client *c, hf_lease *l)
{
    const char *name = "a";
    hf_op *op = NULL;
    int64_t n = 0;

    recipes_without(NULL, name);
    recipes_without(c, NULL);
    hf_ids_close(NULL);
    IS(hf_op_number(NULL), 0);
    IS(hf_resign(NULL, &err), 0);
    REFUSED(hf_proclaim(NULL, "x", &err));
    REFUSED(hf_ids_open(c, name, 1, NULL, &err));
    REFUSED(hf_ids_next(NULL, &n, &err));
    REFUSED(hf_ids_next_start(NULL, done, NULL, &op, &err));
    REFUSED(hf_once(c, name, 0, 0, NULL, NULL, NULL, NULL, &err));
    REFUSED(hf_once_begin(c, name, 0, 0, NULL, NULL, &err));
    REFUSED(hf_once_done(NULL, NULL));
    REFUSED(hf_once_done(l, NULL)); /* of something else */
    REFUSED(hf_once_done_start(NULL, done, NULL, &op, &err));
    REFUSED(hf_leader(c, name, NULL, NULL));
    REFUSED(hf_observe(c, name, NULL, 0, NULL, NULL, NULL));
    REFUSED(hf_count_start(c, name, 1, NULL, NULL, &op, NULL));
    REFUSED(hf_count_start(c, name, 1, done, NULL, NULL, NULL));
    REFUSED(hf_observe_start(c, name, NULL, NULL, &op, NULL));
    REFUSED(hf_campaign(c, name, NULL, 0, NULL, NULL, NULL));
}

int main(int argc, char **argv)
{
    hf_client *c;
    hf_lease *l;
    hf_list *list;

    if (argc != 2 || !hf_version() || hf_open(argv[1], NULL, &c, &err) < 0 ||
        hf_acquire(c, "a", 0, HF_REQUEST(.owner = 7), &l, &err) < 0)
        return printf("%s: %s\n", hf_errname(err.code), err.text), 1;
    without_a_client();
    without_a_lease();
    without_anything_else();
    half(c, l);
    recipes(c, l);
    IS(hf_lease_check(l), 0);
    IS(hf_ls(c, NULL, 0, &list, NULL), 0);
    IS(hf_list_count(list), 1);
    IS(strcmp(hf_line_name(hf_list_at(list, 0)), hf_lease_name(l)), 0);
    hf_list_free(list);
    IS(hf_release(l, NULL), 0);
    hf_close(c);
    printf("%s", bad ? hf_strerror(HF_EBUG) : "");
    return bad;
}
