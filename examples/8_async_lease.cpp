// A callback that only begins its work: it hands an asynchronous write to another thread and returns, and the key stays
// taken until that thread says how it ended. So the writes of a file keep their order, retries included, and no thread
// of the pool waits meanwhile.
#include <turnkey/turnkey.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>

// Stands for io_uring, a database client or a network library: it takes requests at once, and answers later.
class async_disk {
 public:
  using answer = std::function<void(bool written)>;

  void write(std::string file, std::string line, answer when_done) {
    const std::lock_guard lock(mutex_);
    requests_.push({std::move(file), std::move(line), std::move(when_done)});
    changed_.notify_one();
  }
  [[nodiscard]] const std::map<std::string, std::string>& files() const { return files_; }

 private:
  struct request {
    std::string file, line;
    answer when_done;
  };

  void serve(const std::stop_token& stop) {
    for (int served = 0;; ++served) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !requests_.empty(); })) return;
      const request next = std::move(requests_.front());
      requests_.pop();
      lock.unlock();
      const bool written = served % 3 != 1;  // every third write fails
      if (written) files_[next.file] += ' ' + next.line;
      next.when_done(written);
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::queue<request> requests_;
  std::map<std::string, std::string> files_;
  std::jthread thread_{[this](const std::stop_token& stop) { serve(stop); }};
};

int main() {
  async_disk disk;
  turnkey::thread_pool pool{2};
  turnkey::scheduler<std::string> writes{
      pool,
      {.default_policy = turnkey::policy::ordered,
       .retry = turnkey::retry_policy{.max_attempts = 20, .initial_delay = std::chrono::milliseconds{1}}}};

  for (int n = 1; n != 9; ++n)
    for (const std::string file : {"journal", "ledger"})
      writes.submit(file, [&disk, file, n](turnkey::attempt& a) {
        const auto lease = std::make_shared<turnkey::completion>(a.defer());  // a std::function wants a copy
        disk.write(file, std::to_string(n), [lease](bool written) {
          if (written) {
            lease->succeed();
          } else {
            lease->fail("the disk is busy");
          }
        });
      });

  writes.drain();
  for (const auto& [file, lines] : disk.files()) std::cout << file << ':' << lines << '\n';
  std::cout << writes.stats().succeeded << " writes, " << writes.stats().late_results << " results came too late\n";
}
