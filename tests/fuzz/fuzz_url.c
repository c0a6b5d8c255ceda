/* Any bytes as a URL: no crash, no secret in what is shown, and what is taken parses again.
 */
#include "core/url.h"
#include "util/secret.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct url u;
    hf_error err;
    int64_t ms;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (hf__url_parse(&u, text, &err) == 0) {
        struct url again;

        if (hf__url_parse(&again, u.shown, &err) < 0 || again.password)
            abort(); /* what is shown is a URL, without the password */
        hf__url_done(&again);
        hf__url_known(&u, "mode waiters", &err);
        hf__url_done(&u);
    } else if (memchr(err.text, '\0', sizeof err.text) == NULL || err.code != HF_EINVAL) {
        abort();
    }
    if (hf__parse_time(text, &ms) && ms < 0)
        abort();
    free(hf__without_secrets(text)); /* also of what is no URL */
    free(text);
    return 0;
}
