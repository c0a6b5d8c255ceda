/* cpp.cpp: the locks of holdfast.hpp with the guards of the standard library.
 *
 * Goes well: two threads add to a file under a mutex, each with its fence; readers share,
 * and a writer that does not want to wait is refused; two names are moved between under one
 * lease. Goes wrong: a lock that was lost is thrown as holdfast::error by check(), before
 * the step; any other error is thrown where it happens, and the guards give back what is
 * held.
 *
 *     g++ -std=c++17 cpp.cpp $(pkg-config --cflags --libs holdfast) -pthread && ./a.out
 */
#include <holdfast/holdfast.hpp>

#include <cstdlib>
#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <thread>

using namespace std::chrono_literals;

static int total; /* stands for a file that other processes write, too */

static void add(holdfast::mutex &m, int steps)
{
    for (int i = 0; i < steps; i++) {
        std::lock_guard<holdfast::mutex> guard(m);

        m.check();
        total++;
        std::cout << "total " << total << " under fence " << m.fence() << "\n";
    }
}

static void share(holdfast::client &c)
{
    holdfast::shared_mutex config(c, "config");
    std::shared_lock<holdfast::shared_mutex> reader(config);
    holdfast::shared_mutex elsewhere(c, "config"); /* as another process would have it */
    std::unique_lock<holdfast::shared_mutex> writer(elsewhere, std::try_to_lock);

    if (writer)
        throw std::runtime_error("a writer came in beside a reader");
    std::cout << "a writer does not come in beside a reader\n";
}

static void transfer(holdfast::client &c)
{
    holdfast::request r;

    r.note = "from alice to bob";
    holdfast::lease both =
        holdfast::lock_all(c, { "accounts/bob", "accounts/alice" }, 5s, r);
    both.check();
    std::cout << "both accounts, fences " << both.fence("accounts/alice") << " and "
              << both.fence("accounts/bob") << "\n";
}

static int run(const std::string &url)
{
    holdfast::client c(url);
    holdfast::mutex m(c, "total");
    std::thread other(add, std::ref(m), 5);

    add(m, 5);
    other.join();
    share(c);
    transfer(c);
    int got = holdfast::with(c, "total", 5s, [](holdfast::lease &) { return total; });
    return got == 10 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : std::getenv("HOLDFAST_URL");

    try {
        return run(url ? url : "local:");
    } catch (const holdfast::error &e) {
        std::cerr << hf_errname(e.code().value()) << ": " << e.what() << "\n";
    } catch (const std::exception &e) {
        std::cerr << e.what() << "\n";
    }
    return 1;
}
