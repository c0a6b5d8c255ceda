/* statement.c: the statements of all verbs, by mode. Those of a line are functions of
 * schema.sql. Arguments are never part of a text. */
#include "driver/postgres/postgres.h"

#define OWN "pg_catalog."
#define IS " OPERATOR(" OWN "=) "

static const char *const texts[PG_VERBS] = {
    [SQL_JOIN] = "SELECT holdfast.join($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)",
    [SQL_WAIT] = "SELECT holdfast.wait($1,$2,$3,$4,$5)",
    [SQL_LEAVE] = "SELECT holdfast.leave($1,$2,$3,$4)",
    [SQL_RENEW] = "SELECT holdfast.renew($1,$2,$3,$4)",
    [SQL_AMEND] = "SELECT holdfast.amend($1,$2,$3,$4,$5,$6,$7,$8)",
    [SQL_LOOK] = "SELECT * FROM holdfast.look($1,$2,$3,$4,$5,$6)",
    [SQL_LIST] = "SELECT * FROM holdfast.list($1,$2,$3,$4,$5)",
    [SQL_CELL] = "SELECT * FROM holdfast.cell($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)",
    [SQL_EVICT] = "SELECT holdfast.evict($1,$2,$3,$4)",
    [SQL_KEEP] = "SELECT holdfast.keep($1,$2,$3,$4,$5)",
    [SQL_SWEEP] = "SELECT holdfast.sweep($1)",
    /* Like the functions, these use nothing but what is the server's own: types that are
     * words of the language, functions and operators of pg_catalog. */
    [PG_HELLO] =
        "SELECT " OWN "pg_backend_pid()::bigint, (extract(epoch FROM a.backend_start)"
        " OPERATOR(" OWN "*) 1000000::numeric)::bigint,"
        " " OWN "current_setting('server_version_num')::bigint,"
        " CASE WHEN " OWN "pg_is_in_recovery() THEN 1 ELSE 0 END::bigint,"
        " CASE WHEN " OWN "current_setting('transaction_read_only')" IS
        "'on' THEN 1 ELSE 0 END::bigint,"
        " CASE WHEN " OWN "current_setting('fsync')" IS "'off' THEN 1 ELSE 0 END::bigint,"
        " CASE WHEN " OWN "current_setting('full_page_writes')" IS
        "'off' THEN 1 ELSE 0 END::bigint,"
        " CASE WHEN " OWN "to_regclass('holdfast.format') IS NULL THEN 0 ELSE 1"
        " END::bigint,"
        " CASE WHEN " OWN "to_regclass('holdfast.format') IS NULL"
        " AND NOT " OWN "pg_try_advisory_xact_lock(7525353031127561076)"
        " THEN 1 ELSE 0 END::bigint"
        " FROM " OWN "pg_stat_activity a WHERE a.pid" IS OWN "pg_backend_pid()",
    [SQL_END] =
        "SELECT CASE WHEN " OWN "pg_terminate_backend(a.pid, $3::bigint) THEN 1 ELSE 0"
        " END::bigint FROM " OWN "pg_stat_activity a WHERE a.pid::bigint" IS "$1::bigint"
        " AND (extract(epoch FROM a.backend_start)"
        " OPERATOR(" OWN "*) 1000000::numeric)::bigint" IS "$2::bigint",
    [SQL_CANCEL] =
        "SELECT CASE WHEN " OWN "pg_cancel_backend(a.pid) THEN 1 ELSE 0 END::bigint"
        " FROM " OWN "pg_stat_activity a WHERE a.pid::bigint" IS "$1::bigint"
        " AND (extract(epoch FROM a.backend_start)"
        " OPERATOR(" OWN "*) 1000000::numeric)::bigint" IS "$2::bigint",
    [PG_ATTACH] = "SELECT a.*," OWN "set_config('default_transaction_isolation',"
                  "'read committed',false)," OWN
                  "set_config('default_transaction_read_only','off',false)"
                  " FROM holdfast.attach() a",
    [PG_SHAPE] =
        "SELECT " OWN "max(version), (SELECT " OWN "count(DISTINCT p.proname) FROM " OWN
        "pg_proc p, " OWN "unnest('{join,wait,leave,renew,amend,look,list,cell,evict,keep,"
        "sweep,claim,seek,drop,prolong,peek,attach,row_of,row_pids,key_pids}'::" OWN
        "name[]) f WHERE p.pronamespace" IS "'holdfast'::" OWN
        "regnamespace AND p.proname" IS "f)"
        " FROM holdfast.format",
    [PG_NOTIFY] = "SELECT " OWN "pg_notify(" OWN "convert_from($1,'UTF8')," OWN
                  "convert_from($2,'UTF8'))",
};

/* With mode=optimistic; what is not here is as above. */
static const char *const optimistic[PG_VERBS] = {
    [SQL_JOIN] =
        "SELECT holdfast.claim($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)",
    [SQL_WAIT] = "SELECT holdfast.seek($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)",
    [SQL_LEAVE] = "SELECT holdfast.drop($1,$2,$3,$4)",
    [SQL_RENEW] = "SELECT holdfast.prolong($1,$2,$3,$4)",
    [SQL_LOOK] = "SELECT * FROM holdfast.peek($1,$2)",
    [SQL_EVICT] = "SELECT holdfast.drop($1,$2,$3,$4)",
};

/* A row is locked by one statement and updated by the next, which so reads the clock, and
 * the version, when the lock is there. Nobody sees the new version before the commit. */
#define LOCK_ROW "SELECT FROM holdfast.mutex x WHERE x.ns=$1 AND x.name=$2 FOR UPDATE"
#define UPDATE_ROW                                                                         \
    "UPDATE holdfast.mutex x SET version=greatest(x.version+1,"                            \
    "(date_part('epoch',clock_timestamp())*1000000)::int8) WHERE x.ns=$1 AND x.name=$2 "   \
    "RETURNING x.version," LABEL
#define LABEL "set_config('application_name',$3,false)"
#define HOLDERS(pids) pids "($1,$2) p, LATERAL holdfast.holder(p.pid,p.weight) h"
#define LOOK_AT(pids) "SELECT h.* FROM " HOLDERS(pids)
#define END_ONE(pids)                                                                      \
    "SELECT ARRAY[" OWN "count(CASE WHEN " OWN "pg_terminate_backend(p.pid::integer) "     \
    "THEN 1 END)] FROM " HOLDERS(pids) " WHERE h.r_token" IS "$3 AND $4::bigint"           \
                                       " OPERATOR(" OWN ">) 0::bigint"

static const char *const pessimistic[PG_VERBS] = {
    [SQL_UNDO] = "ROLLBACK",
    [SQL_PROVE] = "SELECT set_config('idle_in_transaction_session_timeout',$1,false)",
    [PG_BEGIN] = "BEGIN",
    [PG_TRY_ROW] = LOCK_ROW " NOWAIT",
    [PG_LOCK_ROW] = LOCK_ROW,
    [SQL_TRY] = UPDATE_ROW,
    [SQL_LOCK] = UPDATE_ROW,
    [SQL_RELEASE] = "COMMIT",
    [SQL_MAKE] = "SELECT holdfast.row_of($1,$2)",
    [SQL_LOOK] = LOOK_AT("holdfast.row_pids"),
    [SQL_EVICT] = END_ONE("holdfast.row_pids"),
};

/* The key is in the manual: other programs compute it, too. */
#define KEY "hashtextextended($2,CASE $1 WHEN '' THEN 0 ELSE hashtextextended($1,0) END)"
#define TRY(kind) "SELECT 0::int8," LABEL " WHERE pg_try_advisory_lock" kind "(" KEY ")"
#define WAIT_FOR(kind) "SELECT 0::int8,pg_advisory_lock" kind "(" KEY ")," LABEL
#define RELEASE(kind) "SELECT pg_advisory_unlock" kind "(" KEY ")"

static const char *const advisory[PG_VERBS] = {
    [SQL_UNDO] = "SELECT pg_advisory_unlock_all()",
    [SQL_PROVE] = "SELECT set_config('idle_session_timeout',$1,false)",
    [SQL_TRY] = TRY(""),
    [SQL_LOCK] = WAIT_FOR(""),
    [SQL_RELEASE] = RELEASE(""),
    [PG_TRY_SHARED] = TRY("_shared"),
    [PG_LOCK_SHARED] = WAIT_FOR("_shared"),
    [PG_RELEASE_SHARED] = RELEASE("_shared"),
    [SQL_SHARE] = "SELECT pg_advisory_lock_shared(" KEY "),pg_advisory_unlock(" KEY ")",
    [SQL_LOOK] = LOOK_AT("holdfast.key_pids"),
    [SQL_EVICT] = END_ONE("holdfast.key_pids"),
};

const char *const *const hf__postgres_texts[] = { texts, optimistic, pessimistic,
                                                  advisory };
