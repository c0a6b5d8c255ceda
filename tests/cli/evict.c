/* evict.c: evicts the first who waits for a name, for which the command has no verb.
 *
 *     HOLDFAST_URL=URL evict NAME */
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const char *url = getenv("HOLDFAST_URL");
    hf_client *client = NULL;
    hf_list *list = NULL;
    hf_error err = { .text = "usage: evict NAME" };
    const hf_line *line;
    int rc = argc == 2 && url ? hf_open(url, NULL, &client, &err) : HF_EINVAL;

    if (rc == 0)
        rc = hf_look(client, argv[1], &list, &err);
    if (rc == 0) {
        line = hf_list_at(list, 0);
        rc = hf_evict(client, argv[1],
                      hf_ticket_id(hf_line_ticket(line, hf_line_holders(line))), 0, &err);
    }
    if (rc < 0)
        fprintf(stderr, "evict: %s\n", err.text);
    hf_list_free(list);
    hf_close(client);
    return rc < 0;
}
