/* plain.cpp: holdfast.hpp in a program without exceptions and without type information:
 * what would be thrown ends the program, and everything can be done without.
 */
#include "help.hpp"

#include <csignal>
#include <sys/wait.h>

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "compile this with -fno-exceptions -fno-rtti"
#endif

using namespace std::chrono_literals;

static void errors_are_told()
{
    hf_error why = {};
    holdfast::client bad("nonsense", {}, why);
    CHECK(!bad && why.code == HF_EINVAL);
    holdfast::client c(tap::url, {}, why);
    holdfast::lease l = holdfast::acquire(c, "plain", 1s, {}, why);
    CHECK(l && l.held());
    CHECK(!holdfast::acquire(c, "plain", 0ms, {}, why) && why.code == HF_EBUSY);
    CHECK(!holdfast::try_acquire(c, "plain"));
    CHECK(!l.release());
    l = holdfast::lock_all(c, { "plain", "simple" }, 1s, {}, why);
    CHECK(l && l.fence("simple") > 0);
}

static void guards_work()
{
    holdfast::client c(tap::url);
    holdfast::shared_mutex m(c, "plain");

    {
        std::lock_guard<holdfast::mutex> g(m);
        m.check();
        CHECK(m.held() && m.fence() > 0 && !m.try_lock());
    }
    m.lock_shared();
    m.unlock_shared();
    CHECK(holdfast::with(c, "plain", [](holdfast::lease &l) { return l.held(); }));
}

/* The signal that ends a process which does this, or 0. */
static int killed_by(void (*what)(holdfast::mutex &))
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        holdfast::client c(tap::url);
        holdfast::mutex m(c, "ends");

        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        what(m);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* lock() does not come back without the lock; unlock() does not guess whose lock is meant.
 */
static void errors_end_the_program()
{
    CHECK(killed_by([](holdfast::mutex &m) { m.lock(); }) == 0);
    CHECK(killed_by([](holdfast::mutex &m) {
              m.lock();
              m.lock();
          }) == SIGABRT);
    CHECK(killed_by([](holdfast::mutex &m) { m.unlock(); }) == SIGABRT);
    CHECK(killed_by([](holdfast::mutex &m) {
              m.lock();
              std::thread([&] { m.unlock(); }).join();
          }) == SIGABRT);
}

int main()
{
    return tap::run({ { "errors are told", errors_are_told },
                      { "guards work", guards_work },
                      { "errors end the program", errors_end_the_program } });
}
