/* setups.c: the stores on which the contract suite can be run. */
#include "setup.h"

#include <stddef.h>

const struct setup *const setups[] = {
    &setup_local,
#ifdef HF_TEST_REDIS
    &setup_redis,
    &setup_redis_unix,
    &setup_redis_tls,
    &setup_redis_acl,
    &setup_redis_sentinel,
    &setup_redis_cluster,
    &setup_redlock,
    &setup_redlock_three,
    &setup_redis_plain,
#endif
#ifdef HF_TEST_ZOOKEEPER
    &setup_zookeeper,
    &setup_zookeeper_three,
    &setup_zookeeper_tls,
    &setup_zookeeper_auth,
    &setup_zookeeper_rw,
    &setup_zookeeper_ephemeral,
#endif
    NULL,
};
