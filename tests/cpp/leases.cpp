/* leases.cpp: clients, leases and errors of holdfast.hpp; with(), lock_all(). */
#include "help.hpp"
#include "units.hpp"

#include <memory>

using holdfast::errc;
using namespace std::chrono_literals;

static bool is_free(const char *name)
{
    holdfast::client c(tap::url);

    return static_cast<bool>(holdfast::try_acquire(c, name));
}

static void a_lease_is_moved_and_released()
{
    holdfast::client c(tap::url);
    holdfast::lease a = holdfast::acquire(c, "moved", 10s), b;
    std::uint64_t fence = a.fence();

    CHECK(a && a.held() && a.state() == HF_HELD && fence > 0);
    CHECK(a.remaining() > 0s && a.remaining() <= 30s);
    CHECK(std::string(a.name()) == "moved");
    CHECK(a.fence("moved") == fence && a.fence("other") == 0);
    b = std::move(a);
    CHECK(!a && b && b.fence() == fence); // NOLINT: what is left is empty
    holdfast::lease &same = b;
    b = std::move(same);
    CHECK(b.held() && !is_free("moved"));
    holdfast::lease d(std::move(b));
    CHECK(!d.release() && !d && is_free("moved"));
    CHECK(!d.release() && !d.held() && d.state() == HF_LOST && d.remaining() == 0ms);
    b = holdfast::acquire(c, "moved");
    d = holdfast::acquire(c, "second");
    b = std::move(d); /* releases what it had */
    CHECK(is_free("moved") && !is_free("second"));
}

static void the_destructor_releases()
{
    holdfast::client c(tap::url);

    {
        holdfast::lease l = holdfast::acquire(c, "scope");
        CHECK(!is_free("scope"));
    }
    CHECK(is_free("scope"));
    {
        holdfast::lease l(holdfast::acquire(c, "scope").detach()); /* to C and back */
        CHECK(l && hf_lease_check(l.get()) == 0);
    }
    CHECK(is_free("scope"));
}

static void a_client_is_moved_and_closed()
{
    holdfast::options o;
    o.ttl = 20s;
    holdfast::client a(tap::url, o), b;
    hf_client *handle = a.get();

    b = std::move(a);
    CHECK(!a && b.get() == handle && (b.caps() & HF_CAP_FENCE)); // NOLINT
    holdfast::lease l = holdfast::acquire(b, "closing");
    CHECK(l.remaining() <= 20s);
    b.close();
    CHECK(!b && !l.held());
    CHECK(l.release() == errc::HF_ECLOSED);
    CHECK(is_free("closing"));
}

static void a_request_says_the_rest()
{
    holdfast::client c(tap::url);
    holdfast::request r;
    r.mode = HF_PERMITS;
    r.permits = 2;
    r.capacity = 3;
    r.note = "two of three";
    r.ttl = 10s;
    holdfast::lease l = holdfast::acquire(c, "slots", 1s, r);
    CHECK(!holdfast::try_acquire(c, "slots", r));
    hf_list *list = nullptr;
    CHECK(hf_look(c.get(), "slots", &list, nullptr) == 0);
    const hf_ticket *t = hf_line_ticket(hf_list_at(list, 0), 0);
    CHECK(hf_ticket_note(t) == r.note && hf_ticket_permits(t) == 2);
    hf_list_free(list);
#if __cplusplus >= 202002L
    l = holdfast::acquire(c, "designated", 1s, { .mode = HF_READ, .note = "report" });
    CHECK(holdfast::try_acquire(c, "designated", { .mode = HF_READ }));
#endif
}

static void errors_are_thrown_with_their_text()
{
    holdfast::client c(tap::url);

    try {
        holdfast::acquire(c, "");
        CHECK(false);
    } catch (const holdfast::error &e) {
        CHECK(e.code() == errc::HF_EINVAL && e.code() == std::errc::invalid_argument);
        CHECK(std::string(e.what()) == "the name is empty" && e.detail().retry == 0);
        CHECK(&e.code().category() == &category_of_another_unit());
    }
    CHECK(thrown_by([&] { holdfast::acquire(c, std::string(600, 'x')); }) ==
          errc::HF_EINVAL);
    CHECK(thrown_by([] { holdfast::client bad("no such scheme"); }) == errc::HF_EINVAL);
    holdfast::lease l = holdfast::acquire(c, "mine");
    CHECK(thrown_by([&] { holdfast::acquire(c, "mine"); }) ==
          std::errc::resource_deadlock_would_occur);
    CHECK(thrown_by([&] { holdfast::acquire(c, "mine", 0ms); }) == errc::HF_EBUSY);
    CHECK(thrown_by([] { holdfast::lease().check(); }) == errc::HF_EINVAL);
}

/* C would lock what stands before it. */
static void a_nul_in_a_text_is_refused()
{
    holdfast::client c(tap::url);
    const std::string nul("a\0b", 3);
    holdfast::request r;

    CHECK(thrown_by([&] { holdfast::acquire(c, nul); }) == errc::HF_EINVAL);
    CHECK(thrown_by([&] { holdfast::lock_all(c, { "x", nul }); }) == errc::HF_EINVAL);
    CHECK(thrown_by([&] { holdfast::mutex m(c, nul); }) == errc::HF_EINVAL);
    CHECK(thrown_by([&] { holdfast::client other(tap::url + nul); }) == errc::HF_EINVAL);
    r.note = nul;
    CHECK(thrown_by([&] { holdfast::acquire(c, "x", 0ms, r); }) == errc::HF_EINVAL);
    CHECK(thrown_by([&] { holdfast::lock_all(c, { "x" }, 0ms, r); }) == errc::HF_EINVAL);
    CHECK(thrown_by([&] { holdfast::mutex m(c, "x", r); }) == errc::HF_EINVAL);
}

static void codes_are_conditions_of_the_standard()
{
    const std::pair<errc, std::errc> same[] = {
        { errc::HF_EINVAL, std::errc::invalid_argument },
        { errc::HF_ENOMEM, std::errc::not_enough_memory },
        { errc::HF_EBUSY, std::errc::device_or_resource_busy },
        { errc::HF_ETIMEDOUT, std::errc::timed_out },
        { errc::HF_ECANCELED, std::errc::operation_canceled },
        { errc::HF_EDEADLK, std::errc::resource_deadlock_would_occur },
        { errc::HF_ENOTSUP, std::errc::not_supported },
        { errc::HF_EUNREACHABLE, std::errc::host_unreachable },
        { errc::HF_EAUTH, std::errc::permission_denied },
        { errc::HF_EBUSYSTORE, std::errc::resource_unavailable_try_again },
        { errc::HF_EFULL, std::errc::no_space_on_device },
        { errc::HF_ENOENT, std::errc::no_such_file_or_directory },
        { errc::HF_EPROTO, std::errc::protocol_error },
    };

    for (auto [ours, theirs] : same)
        CHECK(make_error_code(ours) == theirs);
    std::error_code lost = errc::HF_ELOST;
    CHECK(lost == errc::HF_ELOST && lost != std::errc::owner_dead);
    CHECK(lost.message() == "the lock was lost");
    CHECK(std::string(lost.category().name()) == "holdfast");
}

static void errors_are_told_without_throwing()
{
    hf_error why = {};
    holdfast::client bad("nonsense", {}, why);
    CHECK(!bad && why.code == HF_EINVAL);
    holdfast::client c(tap::url, {}, why);
    CHECK(c);
    holdfast::lease l = holdfast::acquire(c, "told", 0ms, {}, why);
    CHECK(l);
    CHECK(!holdfast::acquire(c, "told", 0ms, {}, why) && why.code == HF_EBUSY);
    CHECK(!holdfast::lock_all(c, { "a", "told" }, 0ms, {}, why) && why.code == HF_EBUSY);
    CHECK(!holdfast::lock_all(c, {}, 0ms, {}, why) && why.code == HF_EINVAL);
}

static void a_lost_lease_is_thrown_by_check()
{
    holdfast::client c = prompt();
    holdfast::lease l = holdfast::acquire(c, "evicted");

    l.check();
    evict(c, "evicted");
    AWAIT(!l.held());
    CHECK(thrown_by([&] { l.check(); }) == errc::HF_ELOST);
    CHECK(l.state() == HF_LOST && l.remaining() == 0ms);
    CHECK(l.release() == errc::HF_ELOST);
}

static void several_names_are_one_lease()
{
    holdfast::client c(tap::url);
    const std::vector<std::string> names{ "all/b", "all/a", "all/b" };
    holdfast::lease l = holdfast::lock_all(c, { "all/b", "all/a" }, 5s);

    CHECK(std::string(l.name()) == "all/a" && l.fence("all/a") > 0 && l.fence("all/b") > 0);
    CHECK(!is_free("all/a") && !is_free("all/b"));
    CHECK(thrown_by([&] { holdfast::lock_all(c, names, 0ms); }) == errc::HF_EBUSY);
    CHECK(!l.release() && is_free("all/a") && is_free("all/b"));
    l = holdfast::lock_all(c, names);
    CHECK(l.held());
}

static void with_gives_what_the_body_returns()
{
    holdfast::client c(tap::url);
    int value = 1;
    holdfast::request r;

    CHECK(holdfast::with(c, "body", [](holdfast::lease &l) { return l.held(); }));
    holdfast::with(c, "body", 1s, [&](holdfast::lease &) { value = 2; });
    int &same =
        holdfast::with(c, "body", 1s, r, [&](holdfast::lease &) -> int & { return value; });
    CHECK(&same == &value && value == 2);
    auto made =
        holdfast::with(holdfast::lock_all(c, { "body", "soul" }), [](holdfast::lease &l) {
            return std::make_unique<std::string>(l.name());
        });
    CHECK(*made == "body" && is_free("body") && is_free("soul"));
}

static void with_releases_when_the_body_throws()
{
    holdfast::client c(tap::url);
    bool caught = false;

    try {
        holdfast::with(c, "thrown", [](holdfast::lease &) -> int { throw 42; });
    } catch (int n) {
        caught = n == 42;
    }
    CHECK(caught && is_free("thrown"));
    CHECK(thrown_by([&] {
              holdfast::client other = prompt();
              holdfast::with(other, "gone", [&](holdfast::lease &l) {
                  evict(other, "gone");
                  AWAIT(!l.held());
                  return 1;
              });
          }) == errc::HF_ELOST);
}

#ifdef UNREACHABLE
static void a_store_that_cannot_be_reached()
{
    closed_port port;
    holdfast::client c(port.url(UNREACHABLE));
    holdfast::mutex m(c, "far");

    CHECK(thrown_by([&] { m.lock(); }) == errc::HF_EUNREACHABLE);
    CHECK(thrown_by([&] { m.try_lock(); }) == std::errc::host_unreachable);
    CHECK(thrown_by([&] { holdfast::try_acquire(c, "far"); }) == errc::HF_EUNREACHABLE);
    CHECK(!m.held());
}
#endif

const test_cases lease_cases = {
    { "a lease is moved and released", a_lease_is_moved_and_released },
    { "the destructor releases", the_destructor_releases },
    { "a client is moved and closed", a_client_is_moved_and_closed },
    { "a request says the rest", a_request_says_the_rest },
    { "errors are thrown with their text", errors_are_thrown_with_their_text },
    { "a NUL in a text is refused", a_nul_in_a_text_is_refused },
    { "codes are conditions of the standard", codes_are_conditions_of_the_standard },
    { "errors are told without throwing", errors_are_told_without_throwing },
    { "a lost lease is thrown by check", a_lost_lease_is_thrown_by_check },
    { "several names are one lease", several_names_are_one_lease },
    { "with gives what the body returns", with_gives_what_the_body_returns },
    { "with releases when the body throws", with_releases_when_the_body_throws },
#ifdef UNREACHABLE
    { "a store that cannot be reached", a_store_that_cannot_be_reached },
#endif
};
