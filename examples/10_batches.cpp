// Writes rows to tables in bulk: rows of a table go in order, up to four in one statement, and one bad row takes no
// other with it. A consumer takes messages, not callbacks: one handler for all of them, and no closure for each.
#include <turnkey/consumer.hpp>
#include <turnkey/turnkey.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <map>
#include <mutex>
#include <string>

struct row {
  int id;
  std::string value;
};

// A database that writes as many rows as it is given until it meets one that it can't take.
class database {
 public:
  // How many of the rows were written.
  std::size_t insert(const turnkey::batch<std::string, row>& rows) {
    const std::lock_guard lock(mutex_);
    std::string& statements = log_[rows.key()];
    statements += "  attempt ";
    statements += std::to_string(rows.number());
    statements += ":";
    std::size_t written = 0;
    for (const row& r : rows) {
      statements += " ";
      statements += std::to_string(r.id);
      if (r.value.empty()) {
        statements += " (refused)";
        break;
      }
      ++written;
    }
    statements += "\n";
    return written;
  }

  void print() {
    for (const auto& [table, statements] : log_) std::cout << table << "\n" << statements;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> log_;
};

int main() {
  using namespace std::chrono_literals;
  database db;
  turnkey::thread_pool pool{4};
  turnkey::consumer<std::string, row> rows{
      pool,
      {.default_policy = turnkey::policy::ordered,
       .retry = turnkey::retry_policy{.max_attempts = 3, .initial_delay = 1ms}},
      4,  // at most so many in a batch
      [&db](turnkey::batch<std::string, row>& batch) {
        const std::size_t written = db.insert(batch);
        if (written == batch.size()) return;          // all of them
        batch.fail(written, "the value is missing");  // this one; those behind it come again, not counted
      }};

  rows.pause();  // so that what waits, and so every batch, is the same in every run
  for (int id = 1; id <= 9; ++id) rows.send("users", row{id, "a name"});
  for (int id = 1; id <= 6; ++id) rows.send("orders", row{id, id == 3 ? "" : "an order"});
  rows.resume();
  rows.drain();

  db.print();
  for (const auto& dead : rows.dead_messages())
    std::cout << "dead after " << dead.attempts << " attempts: " << *dead.key << ", " << dead.error.text() << "\n";
  const turnkey::consumer_stats stats = rows.stats();
  std::cout << stats.succeeded << " of " << stats.accepted << " rows written in " << stats.batches << " batches\n";
}
