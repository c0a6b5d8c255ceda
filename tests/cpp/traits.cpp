/* traits.cpp: what the types of holdfast.hpp are, said to the compiler; and the header as
 * the first include of a second unit of the program.
 */
#include <holdfast/holdfast.hpp>

#include "units.hpp"

template <class T> constexpr bool moves_only()
{
    return std::is_nothrow_move_constructible_v<T> &&
           std::is_nothrow_move_assignable_v<T> && std::is_nothrow_destructible_v<T> &&
           std::is_default_constructible_v<T> && !std::is_copy_constructible_v<T> &&
           !std::is_copy_assignable_v<T>;
}

template <class T> constexpr bool stays()
{
    return !std::is_copy_constructible_v<T> && !std::is_move_constructible_v<T> &&
           !std::is_copy_assignable_v<T> && !std::is_move_assignable_v<T> &&
           std::is_constructible_v<T, holdfast::client &, const char *> &&
           std::is_constructible_v<T, holdfast::client &, std::string, holdfast::request>;
}

static_assert(moves_only<holdfast::client>());
static_assert(moves_only<holdfast::lease>());
static_assert(stays<holdfast::mutex>());
static_assert(stays<holdfast::shared_mutex>());
static_assert(!std::is_convertible_v<hf_lease *, holdfast::lease>, "taking over is said");
static_assert(!std::is_convertible_v<hf_client *, holdfast::client>);
static_assert(!std::is_convertible_v<holdfast::lease, bool>);
static_assert(std::is_base_of_v<std::system_error, holdfast::error>);
static_assert(std::is_error_code_enum_v<holdfast::errc>);
static_assert(std::is_aggregate_v<holdfast::request> &&
              std::is_aggregate_v<holdfast::options>);
static_assert(noexcept(std::declval<holdfast::mutex &>().unlock()));
static_assert(noexcept(std::declval<holdfast::shared_mutex &>().unlock_shared()));
static_assert(noexcept(std::declval<holdfast::lease &>().release()));
static_assert(holdfast::forever.count() == HF_FOREVER);

const std::error_category &category_of_another_unit()
{
    return holdfast::category();
}
