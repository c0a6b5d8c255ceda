/* admin.c: what an administrator would run so that a store can be used. Nothing is opened:
 * the driver says it by the URL alone, and no password is in it. */
#include "core/core.h"
#include "core/url.h"

int hf_admin_text(const char *text, char **ret, hf_error *err)
{
    const struct hf_driver *driver = NULL;
    struct url url;
    hf_error why;
    char *made = NULL;
    int rc;

    if (!ret)
        return hf__fail(err, HF_EINVAL, 0, NULL, "ret is NULL");
    rc = hf__url_parse(&url, text, err);
    if (rc < 0)
        return rc;
    rc = hf__driver_find(url.scheme, &driver, err);
    if (rc == 0 && !driver->admin)
        rc = hf__fail(err, HF_ENOTSUP, 0, url.shown, "this store needs no administrator");
    if (rc == 0 && !(made = driver->admin(&url, &why))) {
        hf__url_refused(&url, &why);
        rc = why.code;
        if (err)
            *err = why;
    }
    if (rc == 0)
        *ret = made;
    hf__url_done(&url);
    return rc;
}
