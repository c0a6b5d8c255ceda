/* main.cpp: runs the cases of leases.cpp and locks.cpp. */
#include "tap.hpp"
#include "units.hpp"

int main()
{
    test_cases all = lease_cases;

    all.insert(all.end(), lock_cases.begin(), lock_cases.end());
    return tap::run(all);
}
