// Memory for things of one size, carved from chunks that lie side by side. Freed cells are used again; a chunk whose
// cells are all free goes back to the heap, but for a few spares. Not thread-safe: a shard's lock guards it.
#pragma once

#include <turnkey/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace turnkey::inline v1::detail {

class cell_pool {
 public:
  // Cells are aligned to 16 bytes.
  explicit cell_pool(std::size_t cell_size) noexcept : cell_size_(static_cast<std::uint32_t>(rounded(cell_size))) {}
  cell_pool(const cell_pool&) = delete;
  cell_pool& operator=(const cell_pool&) = delete;
  ~cell_pool() {
    while (open_ != nullptr) {
      chunk* const c = open_;
      TURNKEY_ASSERT(c->used == 0, "every cell was given back");
      unlink(*c);
      free_chunk(c);
    }
  }

  //   Throws   std::bad_alloc; nothing has changed then.
  //   Cost     O(1); one allocation for each chunk of cells.
  [[nodiscard]] void* take() {
    if (open_ == nullptr) grow();
    chunk& c = *open_;
    void* cell = c.free;
    if (cell != nullptr) {
      c.free = c.free->next;
    } else {
      cell = reinterpret_cast<std::byte*>(&c) + c.fresh;
      c.fresh += cell_size_;
    }
    if (c.used++ == 0) --spare_;
    if (c.free == nullptr && c.fresh + cell_size_ > chunk_size) unlink(c);
    return cell;
  }

  //   Needs    what stood in the cell has been destroyed.
  void give(void* cell) noexcept {
    chunk& c = *reinterpret_cast<chunk*>(reinterpret_cast<std::uintptr_t>(cell) & ~(chunk_align - 1));
    const bool was_full = c.free == nullptr && c.fresh + cell_size_ > chunk_size;
    auto* const f = static_cast<free_cell*>(cell);
    f->next = c.free;
    c.free = f;
    if (was_full) link(c);
    if (--c.used != 0) return;
    if (spare_ == max_spare) {
      unlink(c);
      free_chunk(&c);
    } else {
      ++spare_;
    }
  }

  // The size of the cells that hold `size` bytes.
  static constexpr std::size_t rounded(std::size_t size) noexcept { return (size + 15) / 16 * 16; }

 private:
  // A chunk and malloc's word in front of it fill one aligned block, so that chunks follow each other without gaps.
  static constexpr std::uintptr_t chunk_align = 8192;
  static constexpr std::size_t chunk_size = chunk_align - 16;
  static constexpr std::uint32_t max_spare = 8;

  struct free_cell {
    free_cell* next;
  };
  struct chunk {
    free_cell* free = nullptr;
    chunk* previous = nullptr;
    chunk* next = nullptr;
    std::uint32_t fresh = 0;  // where the never used cells begin
    std::uint32_t used = 0;
  };
  static constexpr std::uint32_t first_cell = 64;  // cells of whole cache lines begin at one
  static_assert(sizeof(chunk) <= first_cell);

  void grow() {
    auto* const c = new (::operator new (chunk_size, std::align_val_t{chunk_align})) chunk;
    c->fresh = first_cell;
    ++spare_;
    link(*c);
  }
  static void free_chunk(chunk* c) noexcept { ::operator delete (c, std::align_val_t{chunk_align}); }

  void link(chunk& c) noexcept {
    c.previous = nullptr;
    c.next = open_;
    if (open_ != nullptr) open_->previous = &c;
    open_ = &c;
  }
  void unlink(chunk& c) noexcept {
    (c.previous != nullptr ? c.previous->next : open_) = c.next;
    if (c.next != nullptr) c.next->previous = c.previous;
  }

  chunk* open_ = nullptr;  // the chunks that have a free cell
  std::uint32_t cell_size_;
  std::uint32_t spare_ = 0;  // chunks without a used cell
};

}  // namespace turnkey::inline v1::detail
