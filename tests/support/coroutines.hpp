// Coroutine types as users have them, as small as they can be. turnkey knows none of them.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace support {

// Starts at once and owns itself: nobody waits for it.
struct detached {
  struct promise_type {
    detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

// Starts at once; its frame is destroyed with it, whether it has ended or not.
class owned {
 public:
  struct promise_type {
    owned get_return_object() noexcept { return owned(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { throw; }
  };

  owned(owned&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  owned& operator=(owned&& other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~owned() {
    if (frame_) frame_.destroy();
  }

  [[nodiscard]] bool done() const noexcept { return frame_.done(); }

 private:
  explicit owned(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_;
};

// Starts when it is awaited, gives a value or an exception to the one who awaits it, and insists on seeing all that
// its body awaits, which it moves, as libraries do that add something to it.
template <class T>
class lazy {
 public:
  struct promise_type {
    lazy get_return_object() noexcept { return lazy(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct back {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
          return self.promise().awaiting;
        }
        void await_resume() noexcept {}
      };
      return back{};
    }
    template <class A>
    A await_transform(A&& awaited) {
      return std::forward<A>(awaited);
    }
    void return_value(T result) { value.emplace(std::move(result)); }
    void unhandled_exception() noexcept { error = std::current_exception(); }

    std::coroutine_handle<> awaiting;
    std::optional<T> value;
    std::exception_ptr error;
  };

  lazy(lazy&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  lazy& operator=(lazy&&) = delete;
  ~lazy() {
    if (frame_) frame_.destroy();
  }

  bool await_ready() noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
    frame_.promise().awaiting = awaiting;
    return frame_;
  }
  T await_resume() {
    if (frame_.promise().error) std::rethrow_exception(frame_.promise().error);
    return std::move(*frame_.promise().value);
  }

 private:
  explicit lazy(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_;
};

// co_await g.opened() suspends a coroutine until somebody calls g.open(). The gate itself is not awaited: g++ 12 copies
// what a lambda has captured and awaits.
class gate {
 public:
  gate() = default;
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  auto opened() noexcept {
    struct awaiter {
      gate& here;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<> coroutine) const noexcept { here.waiting_ = coroutine; }
      void await_resume() const noexcept {}
    };
    return awaiter{*this};
  }
  void open() { std::exchange(waiting_, nullptr).resume(); }

 private:
  std::coroutine_handle<> waiting_;
};

}  // namespace support
