/* locks.cpp: mutex and shared_mutex of holdfast.hpp with the guards of the standard
 * library, among threads. What a thread does beside the case is checked by the case after
 * the join.
 */
#include "help.hpp"
#include "units.hpp"

#include <shared_mutex>
#include <thread>

using holdfast::errc;
using namespace std::chrono_literals;

static holdfast::client &store()
{
    static holdfast::client c(tap::url);
    return c;
}

/* As another process would see it. */
static bool others_may_lock(const char *name)
{
    holdfast::client c(tap::url);
    holdfast::mutex m(c, name);

    if (!m.try_lock())
        return false;
    m.unlock();
    return true;
}

static void guards_of_the_standard()
{
    holdfast::mutex m(store(), "guards");
    std::uint64_t fence = 0;

    {
        std::lock_guard<holdfast::mutex> g(m);
        m.check();
        fence = m.fence();
        CHECK(fence > 0 && m.held() && m.name() == "guards" && !others_may_lock("guards"));
    }
    CHECK(!m.held() && others_may_lock("guards"));
    {
        std::scoped_lock g(m);
        CHECK(m.fence() > fence);
    }
    std::unique_lock<holdfast::mutex> u(m, std::defer_lock);
    CHECK(!u.owns_lock() && u.try_lock() && m.held());
    std::unique_lock<holdfast::mutex> v(std::move(u));
    v.unlock();
    v.lock();
    CHECK(v.owns_lock() && !others_may_lock("guards"));
    v = {};
    CHECK(others_may_lock("guards"));
}

static void in_a_thread(void (*body)(holdfast::shared_mutex &), holdfast::shared_mutex &m)
{
    std::thread(body, std::ref(m)).join();
}

static void tries_end_in_time()
{
    holdfast::shared_mutex m(store(), "timed");
    using clock = std::chrono::steady_clock;

    std::unique_lock<holdfast::mutex> a(m, 10s);
    CHECK(a.owns_lock());
    in_a_thread(
        [](holdfast::shared_mutex &o) {
            auto began = clock::now();
            CHECK(!o.try_lock());
            CHECK(!o.try_lock_for(-1s) &&
                  !o.try_lock_for(std::chrono::duration<double>(1e-9)));
            CHECK(!o.try_lock_until(clock::time_point::min()));
            CHECK(!o.try_lock_until(clock::now() - 1h));
            CHECK(!o.try_lock_shared() && !o.try_lock_shared_for(1ns));
            CHECK(!o.try_lock_shared_until(std::chrono::system_clock::now() + 20ms));
            CHECK(!o.try_lock_until(began + 200ms) && clock::now() >= began + 200ms);
            CHECK(!o.try_lock_for(100ms) && clock::now() >= began + 300ms);
        },
        m);
    a.unlock();
    CHECK(m.try_lock_for(std::chrono::hours::max()));
    m.unlock();
    CHECK(m.try_lock_until(clock::time_point::max()));
    m.unlock();
    CHECK(m.try_lock_for(std::chrono::duration<double>::max()));
    m.unlock();
    std::shared_lock<holdfast::shared_mutex> s(m, clock::now() + 1h);
    CHECK(s.owns_lock());
}

/* The counter is a plain one: the thread sanitizer sees it, too. */
static void many_threads_take_turns()
{
    enum { THREADS = 8, TURNS = 100 };
    holdfast::mutex m(store(), "counter");
    std::vector<std::thread> threads;
    int counter = 0;
    std::uint64_t last = 0;

    for (int i = 0; i < THREADS; i++)
        threads.emplace_back([&] {
            for (int k = 0; k < TURNS; k++) {
                std::lock_guard<holdfast::mutex> g(m);
                int seen = counter;
                CHECK(m.held() && m.fence() > last);
                last = m.fence();
                std::this_thread::yield();
                counter = seen + 1;
            }
        });
    for (std::thread &t : threads)
        t.join();
    CHECK(counter == THREADS * TURNS);
}

static void readers_and_writers_of_two_clients()
{
    holdfast::client other(tap::url);
    holdfast::shared_mutex one(store(), "rw"), two(other, "rw");
    std::atomic<int> readers{ 0 }, writers{ 0 }, wrong{ 0 };
    std::vector<std::thread> threads;

    for (int i = 0; i < 8; i++)
        threads.emplace_back([&, i] {
            holdfast::shared_mutex &m = i % 2 ? one : two;
            for (int k = 0; k < 40; k++)
                if (i < 4) {
                    std::unique_lock<holdfast::shared_mutex> g(m);
                    wrong += writers++ != 0 || readers != 0;
                    std::this_thread::yield();
                    writers--;
                } else {
                    std::shared_lock<holdfast::shared_mutex> g(m);
                    readers++;
                    wrong += writers != 0;
                    std::this_thread::yield();
                    readers--;
                }
        });
    for (std::thread &t : threads)
        t.join();
    CHECK(wrong == 0);
    CHECK(others_may_lock("rw"));
}

static void each_reader_gives_back_its_own()
{
    holdfast::shared_mutex m(store(), "readers");
    std::atomic<int> inside{ 0 }, leave{ 0 };
    std::vector<std::thread> threads;

    for (int i = 1; i <= 3; i++)
        threads.emplace_back([&, i] {
            m.lock_shared();
            m.check();
            inside++;
            AWAIT(leave >= i);
            CHECK(m.held()); /* whoever left before has not taken ours */
            m.unlock_shared();
            inside--;
        });
    AWAIT(inside == 3);
    CHECK(!m.held() && thrown_by([&] { m.check(); }) == errc::HF_EINVAL);
    CHECK(!m.try_lock());
    for (int i = 1; i <= 3; i++) {
        leave = i;
        AWAIT(inside == 3 - i);
        CHECK(others_may_lock("readers") == (i == 3));
    }
    for (std::thread &t : threads)
        t.join();
}

static void locking_again_is_a_deadlock()
{
    holdfast::shared_mutex m(store(), "again");
    std::unique_lock<holdfast::shared_mutex> g(m);

    CHECK(thrown_by([&] { m.lock(); }) == std::errc::resource_deadlock_would_occur);
    CHECK(thrown_by([&] { m.lock_shared(); }) == errc::HF_EDEADLK);
    CHECK(thrown_by([&] { m.try_lock_for(1h); }) == errc::HF_EDEADLK);
    CHECK(!m.try_lock() && m.held());
    g.unlock();
    m.lock_shared();
    CHECK(thrown_by([&] { m.lock(); }) == errc::HF_EDEADLK);
    m.unlock_shared();
    CHECK(others_may_lock("again"));
}

static void an_owner_makes_it_recursive()
{
    holdfast::request r;
    r.owner = HF_OWNER_THREAD;
    holdfast::shared_mutex m(store(), "recursive", r);

    m.lock();
    m.lock();
    m.lock_shared();
    m.unlock_shared();
    m.unlock();
    CHECK(m.held() && !others_may_lock("recursive"));
    in_a_thread([](holdfast::shared_mutex &o) { CHECK(!o.try_lock()); }, m);
    m.unlock();
    CHECK(others_may_lock("recursive"));
    r.owner = 7; /* would let in every thread */
    CHECK(thrown_by([&] { holdfast::mutex bad(store(), "recursive", r); }) ==
          errc::HF_EINVAL);
}

static void a_wait_is_cancelled()
{
    hf_cancel *stop = nullptr;
    CHECK(hf_cancel_new(&stop, nullptr) == 0);
    holdfast::request r;
    r.cancel = stop;
    holdfast::shared_mutex m(store(), "cancelled", r);
    holdfast::lease other = holdfast::acquire(store(), "cancelled");
    std::error_code got;
    std::thread t([&] { got = thrown_by([&] { m.lock(); }); });

    hf_cancel_fire(stop);
    t.join();
    CHECK(got == std::errc::operation_canceled);
    hf_cancel_free(stop);
}

/* The first thread loses the lock without knowing it, the second gets it through the same
 * object: the first one's unlock() must not give back the second one's lease. */
static void unlock_after_a_loss_leaves_the_next_holder_alone()
{
    holdfast::client c = prompt();
    holdfast::mutex m(c, "lost");
    std::atomic<int> step{ 0 };

    m.lock();
    std::thread second([&] {
        m.lock();
        step = 1;
        AWAIT(step == 2);
        CHECK(m.held() && !others_may_lock("lost"));
        m.unlock();
    });
    AWAIT([&] {
        hf_list *list = nullptr;
        bool waits = hf_look(c.get(), "lost", &list, nullptr) == 0 &&
                     hf_list_count(list) == 1 && hf_line_waiters(hf_list_at(list, 0)) == 1;
        hf_list_free(list);
        return waits;
    }());
    evict(c, "lost");
    AWAIT(step == 1);
    AWAIT(!m.held());
    CHECK(thrown_by([&] { m.check(); }) == errc::HF_ELOST);
    m.unlock();
    step = 2;
    second.join();
    CHECK(others_may_lock("lost"));
}

const test_cases lock_cases = {
    { "guards of the standard", guards_of_the_standard },
    { "tries end in time", tries_end_in_time },
    { "many threads take turns", many_threads_take_turns },
    { "readers and writers of two clients", readers_and_writers_of_two_clients },
    { "each reader gives back its own", each_reader_gives_back_its_own },
    { "locking again is a deadlock", locking_again_is_a_deadlock },
    { "an owner makes it recursive", an_owner_makes_it_recursive },
    { "a wait is cancelled", a_wait_is_cancelled },
    { "unlock after a loss leaves the next holder alone",
      unlock_after_a_loss_leaves_the_next_holder_alone },
};
