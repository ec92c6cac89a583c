// Coroutines that hold the lease of a key while they wait for a slow store: others of the key wait, and no thread does.
// turnkey brings no coroutine type; `job` stands for yours. At the end a future brings a result back to main().
#include <turnkey/coroutine.hpp>
#include <turnkey/future.hpp>
#include <turnkey/turnkey.hpp>

#include <chrono>
#include <coroutine>
#include <exception>
#include <iostream>
#include <string>

using namespace std::chrono_literals;
using turnkey::policy;

// Starts at once, and nobody waits for it.
struct job {
  struct promise_type {
    job get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

// Whatever your program awaits. Here it is answered after a while by a task without a key.
struct reply {
  turnkey::scheduler<std::string>& tasks;

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> coroutine) const {
    tasks.submit({.delay = 2ms}, [coroutine] { coroutine.resume(); });
  }
  void await_resume() const {}
};

job deposit(turnkey::scheduler<std::string>& tasks, int& balance, int amount) {
  auto lease = co_await tasks.enter("account 7", policy::ordered);
  const int before = balance;
  co_await reply{tasks};  // the lease holds meanwhile, on whatever thread this goes on
  balance = before + amount;
  std::cout << before << " + " << amount << " = " << balance << "\n";
}

job impatient(turnkey::scheduler<std::string>& tasks) {
  try {
    auto lease = co_await tasks.enter("account 8", policy::exclusive);
    std::cout << "account 8 is mine\n";
  } catch (const turnkey::task_cancelled&) {
    std::cout << "account 8: cancelled while it waited\n";
  }
}

int main() {
  turnkey::thread_pool pool{4};
  turnkey::scheduler<std::string> tasks{pool};
  int balance = 0;

  for (const int amount : {100, 20, 3}) deposit(tasks, balance, amount);

  // An ordered task of the same key comes after them all. An exception of its last attempt would come out of get().
  auto total = turnkey::submit_future(tasks, "account 7", {.policy = policy::ordered}, [&balance] { return balance; });
  std::cout << "in total " + std::to_string(total.get()) + "\n";

  tasks.pause("account 8");
  impatient(tasks);
  tasks.cancel("account 8");
  tasks.drain();
}
