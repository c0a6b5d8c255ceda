/* tap.hpp: cases and checks for the programs that test holdfast.hpp. A check that fails
 * says where and goes on: the programs must also work without exceptions.
 */
#ifndef HF_TESTS_TAP_HPP
#define HF_TESTS_TAP_HPP

#include <holdfast/holdfast.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tap
{

inline std::atomic<int> failures{ 0 };
inline std::string url; /* an embedded store in a temporary folder */

inline void failed(const char *file, int line, const char *what)
{
    std::printf("# %s:%d: %s\n", file, line, what);
    failures++;
}

/* Looks again and again: for what happens soon, on a busy machine, too. */
template <class Condition> bool await(Condition condition)
{
    for (int i = 0; i < 30000; i++) {
        if (condition())
            return true;
        usleep(2000);
    }
    return false;
}

inline int run(const std::vector<std::pair<const char *, void (*)()>> &cases)
{
    char folder[] = "/tmp/hf-cpp-XXXXXX";
    int number = 0, bad = 0;

    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (!mkdtemp(folder))
        return 1;
    url = std::string("local://") + folder;
    std::printf("1..%zu\n", cases.size());
    for (auto &[name, fn] : cases) {
        failures = 0;
        fn();
        std::printf("%sok %d - %s\n", failures ? "not " : "", ++number, name);
        bad += failures != 0;
    }
    if (std::system((std::string("rm -rf ") + folder).c_str()) != 0)
        bad++;
    return bad ? 1 : 0;
}

} // namespace tap

#define CHECK(cond) ((cond) ? void() : tap::failed(__FILE__, __LINE__, #cond))
#define AWAIT(cond) CHECK(tap::await([&] { return cond; }))

#endif
