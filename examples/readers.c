/* readers.c: shared and exclusive holds of one name.
 *
 * Goes well: three readers hold at once; a writer that does not want to wait is refused;
 * when the readers have left the writer enters, writes, and turns its hold into a shared
 * one without letting anybody between, so that it reads what it wrote. Goes wrong: any
 * answer but the expected one ends the program with 1.
 */
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME "config/main"

static int fail(const char *what, const hf_error *e)
{
    fprintf(stderr, "%s: %s: %s\n", what, hf_errname(e->code), e->text);
    return 1;
}

static int show(hf_client *client)
{
    hf_list *list;
    hf_error e;
    if (hf_look(client, NAME, &list, &e) < 0)
        return fail("look", &e);
    const hf_line *line = hf_list_at(list, 0);
    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);
        printf("  %s, pid %lld, note \"%s\"\n",
               hf_ticket_mode(t) == HF_READ ? "shared" : "exclusive",
               (long long)hf_ticket_pid(t), hf_ticket_note(t));
    }
    hf_list_free(list);
    return 0;
}

static int write_then_read(hf_client *client)
{
    hf_lease *writer, *reader;
    hf_error e;

    if (hf_acquire(client, NAME, 5000, HF_REQUEST(.mode = HF_WRITE, .note = "new config"),
                   &writer, &e) < 0)
        return fail("writer", &e);
    printf("one writer:\n");
    int rc = show(client);
    if (hf_lease_downgrade(writer, &e) < 0)
        rc = fail("downgrade", &e);
    else if (hf_acquire(client, NAME, 0, HF_REQUEST(.mode = HF_READ), &reader, &e) < 0)
        rc = fail("reader beside the downgraded writer", &e);
    else {
        printf("the writer became a reader, another reader came in:\n");
        rc |= show(client);
        hf_release(reader, NULL);
    }
    hf_release(writer, NULL);
    return rc;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    hf_client *client;
    hf_lease *reader[3], *writer;
    hf_error e;

    if (!url)
        url = "local:";
    if (hf_open(url, NULL, &client, &e) < 0)
        return fail("open", &e);
    for (int i = 0; i < 3; i++)
        if (hf_acquire(client, NAME, 5000, HF_REQUEST(.mode = HF_READ, .note = "report"),
                       &reader[i], &e) < 0)
            return fail("reader", &e);
    printf("three readers:\n");
    int rc = show(client);
    if (hf_acquire(client, NAME, 0, NULL, &writer, &e) != HF_EBUSY) {
        fprintf(stderr, "a writer came in beside readers\n");
        return 1;
    }
    printf("a writer that does not wait: %s\n", hf_strerror(e.code));
    for (int i = 0; i < 3; i++)
        hf_release(reader[i], NULL);
    rc |= write_then_read(client);
    hf_close(client);
    return rc;
}
