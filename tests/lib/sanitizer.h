/* sanitizer.h: which sanitizer this test is built with, and what it must then leave out.
 *
 * A sanitizer makes everything slower: TEST_SLOW multiplies limits, never expectations.
 *
 * The child of a process with threads: ThreadSanitizer does not let it make threads, and
 * AddressSanitizer's allocator may be locked in it for ever, by a thread that was just then
 * allocating in the parent and does not exist in the child (the C library's own allocator
 * is made whole by fork). So beside busy threads such a child must not allocate. */
#ifndef HF_TEST_SANITIZER_H
#define HF_TEST_SANITIZER_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TEST_TSAN 1
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif
#ifndef TEST_TSAN
#define TEST_TSAN 0
#endif
#define TEST_SLOW (TEST_SANITIZED ? 4 : 1)

#endif
