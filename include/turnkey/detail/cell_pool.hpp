// Memory for things of one size, carved from chunks of whole pages. Freed cells are used again; a chunk whose cells are
// all free goes back to the heap, but for a few spares. Not thread-safe: a shard's lock guards it.
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
      if (c.fresh % page_align + cell_size_ > page_size) begin_page(c, c.fresh / page_align + 1);
    }
    if (c.used++ == 0) spare_ -= c.pages;
    if (full(c)) unlink(c);
    return cell;
  }

  //   Needs    what stood in the cell has been destroyed.
  void give(void* cell) noexcept {
    const auto page = reinterpret_cast<std::uintptr_t>(cell) & ~std::uintptr_t{page_align - 1};
    chunk& c = **reinterpret_cast<chunk**>(page);
    const bool was_full = full(c);
    auto* const f = static_cast<free_cell*>(cell);
    f->next = c.free;
    c.free = f;
    if (was_full) link(c);
    if (--c.used != 0) return;
    if (spare_ + c.pages > max_spare) {
      unlink(c);
      free_chunk(&c);
    } else {
      spare_ += c.pages;
    }
  }

  // The size of the cells that hold `size` bytes.
  static constexpr std::size_t rounded(std::size_t size) noexcept { return (size + 15) / 16 * 16; }

 private:
  // The heap leaves nearly a page free behind each chunk: the library rounds the size of an aligned block up to its
  // alignment, and malloc's word in front of the next one moves that to the page after. So a large pool takes chunks of
  // several pages.
  static constexpr std::uint32_t page_align = 8192;
  static constexpr std::uint32_t page_size = page_align - 16;
  static constexpr std::uint32_t max_pages = 16;  // of a chunk
  static constexpr std::uint32_t max_spare = 8;   // pages

  struct free_cell {
    free_cell* next;
  };
  struct chunk {
    chunk* owner;  // itself; the first word of every other page names the chunk too
    free_cell* free = nullptr;
    chunk* previous = nullptr;
    chunk* next = nullptr;
    std::uint32_t fresh = first_cell;  // where the never used cells begin
    std::uint32_t used = 0;
    std::uint32_t pages;
  };
  static constexpr std::uint32_t first_cell = 64;  // of a page: cells of whole cache lines begin at one
  static_assert(sizeof(chunk) <= first_cell);

  // A chunk is at most a 16th of the pool, so that what it keeps from going back to the heap is little.
  void grow() {
    const std::uint64_t part = pages_ / 16 + 1;
    const std::uint32_t pages = part < max_pages ? static_cast<std::uint32_t>(part) : max_pages;
    void* const block = ::operator new (std::size_t{pages} * page_align - 16, std::align_val_t{page_align});
    auto* const c = ::new (block) chunk{.owner = nullptr, .pages = pages};
    c->owner = c;
    pages_ += pages;
    spare_ += pages;
    link(*c);
  }
  void free_chunk(chunk* c) noexcept {
    pages_ -= c->pages;
    ::operator delete (c, std::align_val_t{page_align});
  }

  static bool full(const chunk& c) noexcept { return c.free == nullptr && c.fresh >= c.pages * page_align; }

  // The next fresh cell is the first of that page, if there is one.
  static void begin_page(chunk& c, std::uint32_t number) noexcept {
    c.fresh = number * page_align + first_cell;
    if (number != c.pages) ::new (reinterpret_cast<std::byte*>(&c) + std::size_t{number} * page_align) chunk*(&c);
  }

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
  std::uint32_t spare_ = 0;  // pages of chunks without a used cell
  std::uint64_t pages_ = 0;
};

}  // namespace turnkey::inline v1::detail
