/* units.hpp: what one unit of the test program has of another. */
#ifndef HF_TESTS_UNITS_HPP
#define HF_TESTS_UNITS_HPP

#include <string>
#include <system_error>
#include <utility>
#include <vector>

using test_cases = std::vector<std::pair<const char *, void (*)()>>;

extern const test_cases lease_cases; /* leases.cpp */
extern const test_cases lock_cases;  /* locks.cpp */

const std::error_category &category_of_another_unit(); /* traits.cpp */

#endif
