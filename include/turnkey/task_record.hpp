// Tasks that left a scheduler unfinished, as values: what stop() returns and what an observer is handed of an evicted
// dead task. submit() of any scheduler takes them.
#pragma once

#include <turnkey/detail/ending.hpp>
#include <turnkey/detail/group.hpp>
#include <turnkey/detail/keyed_slot.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/outcome.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace turnkey::inline v1 {

// One task with its callback, alone. Move-only; what is not submitted again is destroyed with it.
//   Threads  a value: one thread at a time.
template <class Key>
class task_record {
 public:
  task_record(task_record&& other) noexcept : engine_(other.engine_), task_(std::exchange(other.task_, nullptr)) {
    other.engine_ = nullptr;
  }
  task_record& operator=(task_record&& other) noexcept {
    task_record(std::move(other)).swap(*this);
    return *this;
  }
  ~task_record() {
    if (task_ != nullptr) {
      detail::engine::spend(*task_, task_state::undone);  // the list of stop() may keep the rest a while
      engine_->dispose(*task_);
    }
    if (engine_ != nullptr) engine_->drop();
  }

  // False once it was submitted or moved from: then nothing else may be asked.
  explicit operator bool() const noexcept { return task_ != nullptr; }

  [[nodiscard]] task_id id() const noexcept { return task_id{task_->id}; }
  [[nodiscard]] const Key* key() const noexcept { return detail::key_of<Key>(*task_->slot); }  // null: none
  // All of them, those of a task of several keys too; the first is *key().
  //   Throws   std::bad_alloc; what copying a key throws.
  [[nodiscard]] std::vector<Key> keys() const {
    std::vector<Key> all;
    if (key() == nullptr) return all;
    detail::each_part(*task_, [&all](const detail::task& part) { all.push_back(*detail::key_of<Key>(*part.slot)); });
    return all;
  }
  [[nodiscard]] turnkey::policy policy() const noexcept { return task_->policy; }
  [[nodiscard]] task_state state() const noexcept { return task_->left_as; }  // when it left
  [[nodiscard]] std::uint32_t attempts() const noexcept {                     // that began
    return detail::attempts_of(*task_, task_->left_as == task_state::running);
  }
  [[nodiscard]] time_point submitted() const noexcept { return task_->submitted; }

 private:
  template <class>
  friend class task_records;
  template <class, class, class>
  friend class detail::keyed_engine;

  // Owns one share of `task`.
  task_record(detail::engine& engine, detail::task& task) noexcept : engine_(&engine), task_(&task) { engine.keep(); }

  void swap(task_record& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(task_, other.task_);
  }

  detail::engine* engine_;
  detail::task* task_;
};

// What stop() returns: a range of task_records, in no order across keys. They live in the memory that the tasks had,
// so it allocates nothing.
template <class Key>
class task_records {
 public:
  class iterator {
   public:
    using value_type = task_record<Key>;
    using difference_type = std::ptrdiff_t;

    iterator() noexcept = default;
    explicit iterator(detail::task* at) noexcept : at_(at) {}
    task_record<Key>& operator*() const noexcept { return task_records::record_in(*at_); }
    task_record<Key>* operator->() const noexcept { return &task_records::record_in(*at_); }
    iterator& operator++() noexcept {
      at_ = at_->peers.next;
      return *this;
    }
    iterator operator++(int) noexcept { return iterator{std::exchange(at_, at_->peers.next)}; }
    bool operator==(const iterator&) const noexcept = default;

   private:
    detail::task* at_ = nullptr;
  };

  task_records() noexcept = default;
  task_records(task_records&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)),
        first_(std::exchange(other.first_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  task_records& operator=(task_records&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(first_, other.first_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~task_records() {
    while (first_ != nullptr) {
      detail::task& t = *std::exchange(first_, first_->peers.next);
      std::destroy_at(&record_in(t));
      engine_->dispose(t);
    }
    if (engine_ != nullptr) engine_->drop();
  }

  [[nodiscard]] iterator begin() const noexcept { return iterator{first_}; }
  [[nodiscard]] iterator end() const noexcept { return {}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

 private:
  template <class, class, class>
  friend class detail::keyed_engine;

  static task_record<Key>& record_in(detail::task& t) noexcept {
    static_assert(sizeof(task_record<Key>) <= sizeof(t.record) && alignof(task_record<Key>) <= alignof(detail::task));
    return *std::launder(reinterpret_cast<task_record<Key>*>(t.record));
  }

  // Takes the tasks that engine::stop() returned. Each has two owners then: this list, and the record inside it.
  task_records(detail::engine& engine, detail::task* first) noexcept : engine_(&engine), first_(first) {
    engine.keep();
    for (detail::task* t = first; t != nullptr; t = t->peers.next) {
      ++t->owners;
      ::new (t->record) task_record<Key>(engine, *t);
      ++size_;
    }
  }

  detail::engine* engine_ = nullptr;
  detail::task* first_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace turnkey::inline v1
