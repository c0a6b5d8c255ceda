/* holdfast.hpp: locks across processes and machines, for C++17. Header-only, over
 * holdfast.h, which says what a line, a lease and a fence are: read that first.
 *
 *     holdfast::client c("redis://cache1");
 *     holdfast::mutex m(c, "jobs/42");
 *     {
 *         std::lock_guard<holdfast::mutex> g(m);
 *         m.check();                        // throws if the lock was lost meanwhile
 *         write_to(m.fence());
 *     }
 *     holdfast::with(c, "jobs/43", [](holdfast::lease &l) { write_to(l.fence()); });
 *
 * Handles (client, lease) can be moved, not copied, and are given back by their destructor.
 * Codes and constants are those of C: HF_READ, errc::HF_EBUSY. What has no member here is
 * called in C, with get().
 *
 * Errors are thrown as holdfast::error, a std::system_error. The calls that take an
 * hf_error fill that instead and return an empty handle. Compiled without exceptions
 * (-fno-exceptions), the library's errors end the program (std::terminate) where they would
 * have been thrown. unlock(), release() and destructors do not throw. That the outcome of a
 * release is not known yet is no error: the client settles it.
 *
 * No exception may leave a callback, a log function or the body of hf_with: there are C
 * functions between it and whoever would catch it. with() has none between.
 */
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include <holdfast/holdfast.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace holdfast
{

/* ---- errors ------------------------------------------------------------------------- */

/* The codes of C under their names: if (e.code() == holdfast::errc::HF_EBUSY). Those that
 * mean what one of std::errc means also compare equal to that: HF_EDEADLK is
 * std::errc::resource_deadlock_would_occur. */
enum class errc : int {
#define HF_X(symbol, number, text, retry) symbol = number,
    HF_ERRORS(HF_X)
#undef HF_X
};

namespace detail
{

class category final : public std::error_category
{
  public:
    const char *name() const noexcept override
    {
        return "holdfast";
    }
    std::string message(int code) const override
    {
        return hf_strerror(code);
    }
    std::error_condition default_error_condition(int code) const noexcept override
    {
        static constexpr struct {
            int ours;
            std::errc theirs;
        } same[] = { { HF_EINVAL, std::errc::invalid_argument },
                     { HF_ENOMEM, std::errc::not_enough_memory },
                     { HF_EBUSY, std::errc::device_or_resource_busy },
                     { HF_ETIMEDOUT, std::errc::timed_out },
                     { HF_ECANCELED, std::errc::operation_canceled },
                     { HF_EDEADLK, std::errc::resource_deadlock_would_occur },
                     { HF_ENOTSUP, std::errc::not_supported },
                     { HF_EUNREACHABLE, std::errc::host_unreachable },
                     { HF_EAUTH, std::errc::permission_denied },
                     { HF_EBUSYSTORE, std::errc::resource_unavailable_try_again },
                     { HF_EFULL, std::errc::no_space_on_device },
                     { HF_ENOENT, std::errc::no_such_file_or_directory },
                     { HF_EPROTO, std::errc::protocol_error } };

        for (const auto &s : same)
            if (s.ours == code)
                return s.theirs;
        return std::error_condition(code, *this);
    }
};

} // namespace detail

inline const std::error_category &category() noexcept
{
    static const detail::category the_one;
    return the_one;
}

inline std::error_code make_error_code(errc e) noexcept
{
    return std::error_code(static_cast<int>(e), category());
}

/* what() is the text of the hf_error; detail() has the rest of it: where, errno, the
 * store's own number, whether the same call may succeed later. */
class error : public std::system_error
{
  public:
    explicit error(const hf_error &why) : std::system_error(why.code, category()), why_(why)
    {
    }
    const char *what() const noexcept override
    {
        return why_.text;
    }
    const hf_error &detail() const noexcept
    {
        return why_;
    }

  private:
    hf_error why_;
};

namespace detail
{

[[noreturn]] inline void raise(const hf_error &why)
{
#ifdef __cpp_exceptions
    throw error(why);
#else
    static_cast<void>(why);
    std::terminate();
#endif
}

inline hf_error error_of(int code, const char *text) noexcept
{
    hf_error e = {};
    std::size_t n = std::strlen(text);

    e.code = code;
    std::memcpy(e.text, text, n < sizeof e.text ? n : sizeof e.text - 1);
    return e;
}

/* C would take what stands before the NUL: another name. */
inline bool is_c_string(const std::string &text, hf_error &why) noexcept
{
    if (text.find('\0') == std::string::npos)
        return true;
    why = error_of(HF_EINVAL, "a text has a NUL in it");
    return false;
}

} // namespace detail

/* ---- clients ------------------------------------------------------------------------ */

struct options { /* hf_options */
    std::uint32_t drive = HF_DRIVE_CALLER;
    std::chrono::milliseconds ttl{ 0 }; /* 0: the URL's ttl=, or 30 s */
    void (*log)(void *user, int level, const char *name, const char *text) = nullptr;
    void *user = nullptr;                /* passed to log, which must not throw */
    std::string owner{};                 /* act for this owner of another process */
    std::chrono::microseconds spin{ 0 }; /* 0: the URL's spin=, or as long as pays;
                                            HF_SPIN_NEVER */
};

/* One opened store. It must outlive the mutexes that use it, and must not be destroyed in a
 * callback. Its leases may live longer: they are lost then. */
class client
{
  public:
    client() noexcept = default;
    explicit client(const std::string &url, const options &o = {})
    {
        hf_error why = {};

        if (!open(url, o, why))
            detail::raise(why);
    }
    client(const std::string &url, const options &o, hf_error &why) noexcept
    {
        open(url, o, why);
    }
    explicit client(hf_client *opened) noexcept : c_(opened) /* takes it over */
    {
    }
    client(client &&other) noexcept : c_(std::exchange(other.c_, nullptr))
    {
    }
    client &operator=(client &&other) noexcept
    {
        client taken(std::move(other)); /* other may be this */

        std::swap(c_, taken.c_);
        return *this;
    }
    ~client()
    {
        hf_close(c_);
    }
    void close() noexcept
    {
        hf_close(std::exchange(c_, nullptr));
    }
    explicit operator bool() const noexcept
    {
        return c_ != nullptr;
    }
    hf_client *get() const noexcept
    {
        return c_;
    }
    std::uint32_t caps() const noexcept /* HF_CAP_* */
    {
        return hf_client_caps(c_);
    }

  private:
    bool open(const std::string &url, const options &o, hf_error &why) noexcept
    {
        hf_options q = HF_OPTIONS_INIT;

        if (!detail::is_c_string(url, why) || !detail::is_c_string(o.owner, why))
            return false;
        q.drive = o.drive;
        q.ttl_ms = o.ttl.count();
        q.log = o.log;
        q.user = o.user;
        q.owner = o.owner.empty() ? nullptr : o.owner.c_str();
        q.spin_us = o.spin.count();
        return hf_open(url.c_str(), &q, &c_, &why) == 0;
    }

    hf_client *c_ = nullptr;
};

/* ---- leases ------------------------------------------------------------------------- */

/* One grant, of one name or several; or empty. The destructor releases it. */
class lease
{
  public:
    lease() noexcept = default;
    explicit lease(hf_lease *granted) noexcept : l_(granted) /* takes it over */
    {
    }
    lease(lease &&other) noexcept : l_(std::exchange(other.l_, nullptr))
    {
    }
    lease &operator=(lease &&other) noexcept
    {
        lease taken(std::move(other)); /* other may be this */

        std::swap(l_, taken.l_);
        return *this;
    }
    ~lease()
    {
        hf_release(l_, nullptr);
    }

    /* Releases it now. The result says whether it was held to the end: no error, or
     * HF_ELOST. */
    std::error_code release() noexcept
    {
        int rc = hf_release(std::exchange(l_, nullptr), nullptr);

        return rc == 0 || rc == HF_EUNKNOWN ? std::error_code()
                                            : std::error_code(rc, category());
    }

    /* Ask before each step that must not happen twice: throws HF_ELOST unless the lease is
     * held and the store cannot yet have given the place to another. */
    void check() const
    {
        int rc = hf_lease_check(l_);

        if (rc < 0)
            detail::raise(detail::error_of(rc, hf_strerror(rc)));
    }
    [[nodiscard]] bool held() const noexcept /* the same as an answer */
    {
        return hf_lease_check(l_) == 0;
    }
    int state() const noexcept /* HF_HELD, HF_AT_RISK, HF_LOST */
    {
        return l_ ? hf_lease_state(l_) : HF_LOST;
    }
    std::chrono::milliseconds remaining() const noexcept /* until check says lost */
    {
        return std::chrono::milliseconds(hf_lease_remaining_ms(l_));
    }
    std::uint64_t fence() const noexcept /* several names: of the first by bytes */
    {
        return hf_lease_fence(l_);
    }
    std::uint64_t fence(const char *name) const noexcept /* 0: not in this lease */
    {
        return hf_lease_fence_of(l_, name);
    }
    const char *name() const noexcept /* several: the first by bytes; empty lease: NULL */
    {
        return hf_lease_name(l_);
    }
    explicit operator bool() const noexcept /* is there one? Not: is it held? */
    {
        return l_ != nullptr;
    }
    hf_lease *get() const noexcept
    {
        return l_;
    }
    hf_lease *detach() noexcept /* the caller's now; the lease is empty */
    {
        return std::exchange(l_, nullptr);
    }

  private:
    hf_lease *l_ = nullptr;
};

/* ---- acquiring ---------------------------------------------------------------------- */

inline constexpr std::chrono::milliseconds forever{ HF_FOREVER };

struct request { /* hf_request: an exclusive, renewed lock unless told otherwise */
    std::uint32_t mode = HF_MUTEX;           /* HF_MUTEX, HF_READ, HF_WRITE, HF_PERMITS */
    std::uint32_t flags = 0;                 /* HF_BARGE, HF_NO_RENEW, HF_NEED_DEADLINE */
    std::uint32_t permits = 0;               /* HF_PERMITS: how many */
    std::uint32_t capacity = 0;              /* HF_PERMITS: of the whole line */
    std::chrono::milliseconds ttl{ 0 };      /* 0: the client's */
    std::chrono::milliseconds max_hold{ 0 }; /* 0: none */
    std::uint64_t owner = HF_OWNER_CALL;     /* HF_OWNER_THREAD, or a number of yours */
    std::string note{};                      /* shown to whoever looks */
    hf_cancel *cancel = nullptr; /* ends the wait with HF_ECANCELED when fired */
};

namespace detail
{

inline hf_request c_request(const request &r) noexcept
{
    hf_request q = HF_REQUEST_INIT;

    q.mode = r.mode;
    q.flags = r.flags;
    q.permits = r.permits;
    q.capacity = r.capacity;
    q.ttl_ms = r.ttl.count();
    q.max_hold_ms = r.max_hold.count();
    q.owner = r.owner;
    q.note = r.note.empty() ? nullptr : r.note.c_str();
    q.cancel = r.cancel;
    return q;
}

} // namespace detail

/* Waits for the grant; 0 or less: does not wait. With `why`: empty if there is none. */
inline lease acquire(client &c, const std::string &name, std::chrono::milliseconds wait,
                     const request &r, hf_error &why) noexcept
{
    hf_request q = detail::c_request(r);
    hf_lease *l = nullptr;

    if (!detail::is_c_string(name, why) || !detail::is_c_string(r.note, why) ||
        hf_acquire(c.get(), name.c_str(), wait.count(), &q, &l, &why) < 0)
        return lease();
    return lease(l);
}

inline lease acquire(client &c, const std::string &name,
                     std::chrono::milliseconds wait = forever, const request &r = {})
{
    hf_error why = {};
    lease l = acquire(c, name, wait, r, why);

    if (!l)
        detail::raise(why);
    return l;
}

/* Does not wait. Empty: somebody else holds it; any other error is thrown. */
inline lease try_acquire(client &c, const std::string &name, const request &r = {})
{
    hf_error why = {};
    lease l = acquire(c, name, std::chrono::milliseconds(0), r, why);

    if (!l && why.code != HF_EBUSY)
        detail::raise(why);
    return l;
}

/* All of the names or none, as one lease: lock_all(c, { "a", "b" }). This, and not
 * std::scoped_lock or std::lock over several mutexes, which wait for one, try the others
 * and give back all that they have when one is taken: here each try is a request to the
 * store, each giving back loses the place in a line, and two programs can do that to each
 * other for ever. lock_all takes the names in one order, waits in each line, and keeps what
 * it has. */
inline lease lock_all(client &c, const std::vector<std::string> &names,
                      std::chrono::milliseconds wait, const request &r, hf_error &why)
{
    hf_request q = detail::c_request(r);
    hf_lease *l = nullptr;
    std::vector<const char *> texts;

    if (!detail::is_c_string(r.note, why))
        return lease();
    for (const std::string &name : names) {
        if (!detail::is_c_string(name, why))
            return lease();
        texts.push_back(name.c_str());
    }
    if (hf_acquire_all(c.get(), texts.data(), texts.size(), wait.count(), &q, &l, &why) < 0)
        return lease();
    return lease(l);
}

inline lease lock_all(client &c, const std::vector<std::string> &names,
                      std::chrono::milliseconds wait = forever, const request &r = {})
{
    hf_error why = {};
    lease l = lock_all(c, names, wait, r, why);

    if (!l)
        detail::raise(why);
    return l;
}

/* Calls body(lease &) and releases, also if the body throws. The result is the body's;
 * HF_ELOST is thrown if the lease was lost before the body ended. */
template <class Body> std::invoke_result_t<Body, lease &> with(lease l, Body &&body)
{
    using result = std::invoke_result_t<Body, lease &>;
    const auto settle = [&l] {
        if (l.release())
            detail::raise(
                detail::error_of(HF_ELOST, "the lock was lost before the body ended"));
    };

    if constexpr (std::is_void_v<result>) {
        std::invoke(std::forward<Body>(body), l);
        settle();
    } else {
        result got = std::invoke(std::forward<Body>(body), l);

        settle();
        return std::forward<result>(got);
    }
}

template <class Body>
std::invoke_result_t<Body, lease &> with(client &c, const std::string &name,
                                         std::chrono::milliseconds wait, const request &r,
                                         Body &&body)
{
    return with(acquire(c, name, wait, r), std::forward<Body>(body));
}

template <class Body>
std::invoke_result_t<Body, lease &> with(client &c, const std::string &name,
                                         std::chrono::milliseconds wait, Body &&body)
{
    return with(acquire(c, name, wait), std::forward<Body>(body));
}

template <class Body>
std::invoke_result_t<Body, lease &> with(client &c, const std::string &name, Body &&body)
{
    return with(acquire(c, name), std::forward<Body>(body));
}

/* ---- mutexes ------------------------------------------------------------------------ */

/* A name as a TimedLockable: for std::lock_guard, std::unique_lock, std::scoped_lock (of
 * one: see lock_all). It excludes threads, processes and machines alike; an object may be
 * shared by threads.
 *
 * lock() returns with the lock or throws. try_lock() is false only if somebody else holds
 * it, try_lock_for() and try_lock_until() also if the time is over; every other error is
 * thrown. Locking it again in the same thread is HF_EDEADLK, unless the request's owner is
 * HF_OWNER_THREAD: then it is recursive. An owner of the program's own would let in every
 * thread that uses it: HF_EINVAL. The mode of the request is not used.
 *
 * As with std::mutex, unlock() is for the thread that locked, and nobody may hold the mutex
 * when it is destroyed. unlock() in a thread that has not locked ends the program.
 *
 * Why each thread's lease is kept apart: a lease may be lost without its thread knowing,
 * and another thread is granted the lock through the same object before the first one
 * unlocks. With one place for "the" lease that unlock() would release the other thread's. A
 * record is made before the lock is asked for and only moved after the grant, so that
 * nothing can fail then.
 */
class mutex
{
  public:
    mutex(client &c, std::string name, request r = {})
        : client_(c.get()), name_(std::move(name)), request_(std::move(r))
    {
        hf_error why = {};

        if (!detail::is_c_string(name_, why) || !detail::is_c_string(request_.note, why))
            detail::raise(why);
        if (request_.owner != HF_OWNER_CALL && request_.owner != HF_OWNER_THREAD)
            detail::raise(detail::error_of(HF_EINVAL, "a mutex cannot have such an owner"));
    }
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock()
    {
        wait_for(HF_WRITE);
    }
    bool try_lock()
    {
        return take(HF_WRITE, 0);
    }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
    {
        return take(HF_WRITE, wait_ms(time));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        return take_until(HF_WRITE, time);
    }
    void unlock() noexcept
    {
        give_back(HF_WRITE);
    }

    /* Of what the calling thread holds: see lease. HF_EINVAL if it holds nothing. */
    std::uint64_t fence() const
    {
        std::lock_guard<std::mutex> g(guard_);

        return must_hold().fence();
    }
    void check() const
    {
        std::lock_guard<std::mutex> g(guard_);

        must_hold().check();
    }
    [[nodiscard]] bool held() const noexcept
    {
        std::lock_guard<std::mutex> g(guard_);
        const lease *l = mine();

        return l && l->held();
    }
    const std::string &name() const noexcept
    {
        return name_;
    }

  protected:
    void wait_for(std::uint32_t mode)
    {
        hf_error why = {};

        if (acquire(mode, HF_FOREVER, why) < 0)
            detail::raise(why);
    }
    bool take(std::uint32_t mode, std::int64_t ms)
    {
        hf_error why = {};
        int rc = acquire(mode, ms, why);

        if (rc < 0 && rc != HF_EBUSY && !(rc == HF_ETIMEDOUT && ms > 0))
            detail::raise(why);
        return rc == 0;
    }
    /* Clocks may be stepped, and ours counts through suspend: in time means by the
     * caller's. */
    template <class Clock, class Duration>
    bool take_until(std::uint32_t mode,
                    const std::chrono::time_point<Clock, Duration> &time)
    {
        for (;;) {
            auto now = Clock::now();

            if (now >= time)
                return take(mode, 0);
            if (take(mode, wait_ms(time - now)))
                return true;
        }
    }
    void give_back(std::uint32_t mode) noexcept
    {
        std::list<hold> gone; /* released at the end, without the guard */
        std::lock_guard<std::mutex> g(guard_);

        for (auto h = holds_.begin(); h != holds_.end(); ++h)
            if (h->thread == std::this_thread::get_id() && h->mode == mode) {
                gone.splice(gone.begin(), holds_, h);
                return;
            }
        std::terminate();
    }
    /* Up, so that the shortest wait is one; and an end of time is HF_FOREVER. */
    template <class Rep, class Period>
    static std::int64_t wait_ms(const std::chrono::duration<Rep, Period> &time)
    {
        using real = std::chrono::duration<long double, std::milli>;

        if (!(time > time.zero()))
            return 0;
        if (real(time).count() >= static_cast<long double>(HF_FOREVER))
            return HF_FOREVER;
        return std::chrono::ceil<std::chrono::milliseconds>(time).count();
    }

  private:
    struct hold {
        std::thread::id thread;
        std::uint32_t mode;
        lease held;
    };

    int acquire(std::uint32_t mode, std::int64_t ms, hf_error &why)
    {
        std::list<hold> made;
        hf_request q = detail::c_request(request_);
        hf_lease *l = nullptr;
        int rc;

        made.push_back(hold{ std::this_thread::get_id(), mode, lease() });
        q.mode = mode;
        rc = hf_acquire(client_, name_.c_str(), ms, &q, &l, &why);
        if (rc < 0)
            return rc;
        made.front().held = lease(l);
        std::lock_guard<std::mutex> g(guard_);
        holds_.splice(holds_.begin(), made);
        return 0;
    }
    /* The newest of the calling thread, or NULL. Under the guard. */
    const lease *mine() const noexcept
    {
        for (const hold &h : holds_)
            if (h.thread == std::this_thread::get_id())
                return &h.held;
        return nullptr;
    }
    const lease &must_hold() const
    {
        const lease *l = mine();

        if (!l)
            detail::raise(
                detail::error_of(HF_EINVAL, "the calling thread does not hold it"));
        return *l;
    }

    hf_client *client_;
    std::string name_;
    request request_;
    mutable std::mutex guard_;
    std::list<hold> holds_; /* newest first */
};

/* The same with readers, who share it among themselves: also for std::shared_lock. Each
 * reader has a lease of its own: unlock_shared() is for the thread that called
 * lock_shared(). Asking for the exclusive lock while holding the shared one is HF_EDEADLK.
 */
class shared_mutex : public mutex
{
  public:
    using mutex::mutex;

    void lock_shared()
    {
        wait_for(HF_READ);
    }
    bool try_lock_shared()
    {
        return take(HF_READ, 0);
    }
    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time)
    {
        return take(HF_READ, wait_ms(time));
    }
    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        return take_until(HF_READ, time);
    }
    void unlock_shared() noexcept
    {
        give_back(HF_READ);
    }
};

} // namespace holdfast

template <> struct std::is_error_code_enum<holdfast::errc> : std::true_type {
};

#endif
