/* help.hpp: what several cases need: who throws what, breaking a lock, a store that nobody
 * serves. */
#ifndef HF_TESTS_HELP_HPP
#define HF_TESTS_HELP_HPP

#include "tap.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifdef __cpp_exceptions
/* The error that a call throws; no error if it does not. */
template <class Call> std::error_code thrown_by(Call call)
{
    try {
        call();
    } catch (const std::system_error &e) {
        return e.code();
    }
    return std::error_code();
}
#endif

/* Takes the place away from whoever holds the name now. */
inline void evict(holdfast::client &c, const char *name)
{
    hf_list *list = nullptr;

    CHECK(hf_look(c.get(), name, &list, nullptr) == 0 && hf_list_count(list) == 1);
    if (const hf_line *line = hf_list_at(list, 0))
        CHECK(hf_evict(c.get(), name, hf_ticket_id(hf_line_ticket(line, 0)), HF_EVICT_NOW,
                       nullptr) == 0);
    hf_list_free(list);
}

/* Loss is told at once, also when no call is under way. */
inline holdfast::client prompt()
{
    holdfast::options o;

    o.drive = HF_DRIVE_PROMPT;
    return holdfast::client(tap::url, o);
}

/* A port of this machine that refuses connections, as long as this object lives. */
class closed_port
{
  public:
    closed_port() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        socklen_t len = sizeof at_;

        at_.sin_family = AF_INET;
        at_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK(bind(fd_, reinterpret_cast<sockaddr *>(&at_), len) == 0);
        CHECK(getsockname(fd_, reinterpret_cast<sockaddr *>(&at_), &len) == 0);
    }
    closed_port(const closed_port &) = delete;
    closed_port &operator=(const closed_port &) = delete;
    ~closed_port()
    {
        close(fd_);
    }
    std::string url(const char *scheme) const
    {
        return std::string(scheme) + "://127.0.0.1:" + std::to_string(ntohs(at_.sin_port)) +
               "?connect_timeout=300ms";
    }

  private:
    int fd_;
    sockaddr_in at_{};
};

#endif
