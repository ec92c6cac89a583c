// Replaces the global operator new and delete, in all forms: counts, and fails when told.
#include "support/heap.hpp"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> blocks{0};
std::atomic<std::int64_t> bytes{0};
std::atomic<std::uint64_t> calls{0};
thread_local bool armed = false;
thread_local std::uint64_t left = 0;
thread_local bool failed = false;

void* take(std::size_t size, std::size_t align) noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
  if (armed && left-- == 0) {
    armed = false;
    failed = true;
    return nullptr;
  }
  if (size == 0) size = 1;
  void* const p = align <= alignof(std::max_align_t) ? std::malloc(size)
                                                     : std::aligned_alloc(align, (size + align - 1) / align * align);
  if (p == nullptr) return nullptr;
  blocks.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<std::int64_t>(malloc_usable_size(p)), std::memory_order_relaxed);
  return p;
}

void* take_or_throw(std::size_t size, std::size_t align) {
  void* const p = take(size, align);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void give(void* p) noexcept {
  if (p == nullptr) return;
  blocks.fetch_sub(1, std::memory_order_relaxed);
  bytes.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(p)), std::memory_order_relaxed);
  std::free(p);
}

}  // namespace

namespace support::heap {

usage alive() noexcept { return {blocks.load(), bytes.load()}; }
std::uint64_t allocations() noexcept { return calls.load(); }

failing::failing(std::uint64_t k) noexcept {
  armed = true;
  left = k;
  failed = false;
}
failing::~failing() { armed = false; }
bool failing::happened() noexcept { return failed; }

}  // namespace support::heap

void* operator new(std::size_t size) { return take_or_throw(size, 0); }
void* operator new[](std::size_t size) { return take_or_throw(size, 0); }
void* operator new(std::size_t size, std::align_val_t align) {
  return take_or_throw(size, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t size, std::align_val_t align) {
  return take_or_throw(size, static_cast<std::size_t>(align));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return take(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return take(size, 0); }
void* operator new(std::size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  return take(size, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  return take(size, static_cast<std::size_t>(align));
}

void operator delete(void* p) noexcept { give(p); }
void operator delete[](void* p) noexcept { give(p); }
void operator delete(void* p, std::size_t) noexcept { give(p); }
void operator delete[](void* p, std::size_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { give(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { give(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { give(p); }
