/* rows.c: the rows of an answer, read from the library value by value: it gives lengths
 * first, and the bytes when there is room for them. Numbers become texts, and every value
 * has a NUL behind it. */
#include "driver/mysql/mysql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *hf__mysql_grown(void *old, size_t *room, size_t need, size_t size)
{
    void *p = need <= *room ? old : realloc(old, 2 * need * size);

    if (p && need > *room)
        *room = 2 * need;
    return p;
}

const void *hf__mysql_bytes(const struct sql_reply *r, size_t row, size_t column, size_t *n)
{
    const struct my_rows *rows = r->own;
    const struct my_span *at;

    *n = 0;
    if (row >= rows->rows || column >= rows->columns)
        return "";
    at = &rows->spans[row * rows->columns + column];
    *n = at->len;
    return rows->bytes + at->at;
}

int64_t hf__mysql_number(const struct sql_reply *r, size_t row, size_t column)
{
    size_t n;

    return strtoll(hf__mysql_bytes(r, row, column, &n), NULL, 10);
}

static bool make_room(struct my_rows *r, size_t bytes)
{
    char *more = hf__mysql_grown(r->bytes, &r->room, r->used + bytes + 1, 1);
    struct my_span *spans =
        hf__mysql_grown(r->spans, &r->nspans, (r->rows + 1) * r->columns, sizeof *spans);

    if (more)
        r->bytes = more;
    if (spans)
        r->spans = spans;
    return more && spans;
}

bool hf__mysql_put_number(struct my_rows *r, uint64_t number)
{
    enum { DIGITS = 20 };

    r->columns = 1;
    if (!make_room(r, DIGITS))
        return false;
    r->spans[0].at = r->used;
    r->spans[0].len =
        (size_t)sprintf(r->bytes + r->used, "%llu", (unsigned long long)number);
    r->rows = 1;
    return true;
}

static bool read_value(struct my_rows *r, MYSQL_STMT *stmt, unsigned column,
                       unsigned long len)
{
    struct my_span *span;
    MYSQL_BIND b = { .buffer_type = MYSQL_TYPE_BLOB, .buffer_length = len };

    if (!make_room(r, len))
        return false;
    b.buffer = r->bytes + r->used;
    if (len > 0 && mysql_stmt_fetch_column(stmt, &b, column, 0) != 0)
        return false;
    span = &r->spans[r->rows * r->columns + column];
    span->at = r->used;
    span->len = len;
    r->bytes[r->used + len] = '\0';
    r->used += len + 1;
    return true;
}

bool hf__mysql_bind_row(struct my_conn *c, MYSQL_STMT *stmt)
{
    MYSQL_BIND binds[COLUMNS_MAX];

    c->rows.columns = mysql_stmt_field_count(stmt);
    if (c->rows.columns > COLUMNS_MAX)
        return false;
    memset(binds, 0, sizeof binds);
    for (size_t i = 0; i < c->rows.columns; i++) {
        binds[i].buffer_type = MYSQL_TYPE_BLOB;
        binds[i].length = &c->lengths_of[i];
        binds[i].is_null = &c->nulls[i];
    }
    return mysql_stmt_bind_result(stmt, binds) == 0;
}

bool hf__mysql_read_row(struct my_conn *c, MYSQL_STMT *stmt)
{
    for (unsigned i = 0; i < c->rows.columns; i++)
        if (!read_value(&c->rows, stmt, i, c->nulls[i] ? 0 : c->lengths_of[i]))
            return false;
    c->rows.rows++;
    return true;
}

/* "1,2,3" */
size_t hf__mysql_numbers(const char *text, int64_t numbers[MY_NUMBERS])
{
    size_t n = 0;
    char *end;

    while (*text && n < MY_NUMBERS) {
        numbers[n++] = strtoll(text, &end, 10);
        if (end == text)
            return 0;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

void hf__mysql_forget_rows(struct my_rows *r)
{
    free(r->bytes);
    free(r->spans);
    memset(r, 0, sizeof *r);
}
