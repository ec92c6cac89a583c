// The only macros of turnkey: the marks for clang's thread-safety analysis, and the assert for our own bugs.
#pragma once

#include <cassert>

#if defined(__clang__)
#define TURNKEY_TSA(x) __attribute__((x))
#else
#define TURNKEY_TSA(x)
#endif

#define TURNKEY_CAPABILITY(name) TURNKEY_TSA(capability(name))
#define TURNKEY_SCOPED_CAPABILITY TURNKEY_TSA(scoped_lockable)
#define TURNKEY_GUARDED_BY(mutex) TURNKEY_TSA(guarded_by(mutex))
#define TURNKEY_REQUIRES(...) TURNKEY_TSA(requires_capability(__VA_ARGS__))
#define TURNKEY_ACQUIRE(...) TURNKEY_TSA(acquire_capability(__VA_ARGS__))
#define TURNKEY_RELEASE(...) TURNKEY_TSA(release_capability(__VA_ARGS__))
#define TURNKEY_ASSERT_HELD(...) TURNKEY_TSA(assert_capability(__VA_ARGS__))
#define TURNKEY_NO_ANALYSIS TURNKEY_TSA(no_thread_safety_analysis)

// A broken invariant of ours; `rule` is its number in detail/key_slot.hpp or in the header that states it.
#ifndef TURNKEY_ASSERT
#define TURNKEY_ASSERT(condition, rule) assert((condition) && (rule))
#endif
