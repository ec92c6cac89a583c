// Moves money between accounts on four threads, with no lock anywhere. A transfer names both accounts as its keys: it
// runs when it has the leases of both, so the balances are plain numbers. Nobody has to think of an order of the
// accounts: A to B and B to A at the same time is no deadlock.
#include <turnkey/turnkey.hpp>

#include <array>
#include <cstddef>
#include <iostream>
#include <random>
#include <vector>

constexpr std::size_t accounts = 100;
constexpr long at_first = 1'000;
constexpr int transfers = 50'000;

int main() {
  std::array<long, accounts> balance;  // plain: each is touched with the lease of its account only
  balance.fill(at_first);

  turnkey::thread_pool pool{4};
  turnkey::scheduler<std::size_t> bank{pool, {.default_policy = turnkey::policy::exclusive}};

  std::minstd_rand random{11};
  for (int i = 0; i != transfers; ++i) {
    const std::size_t from = random() % accounts;
    const std::size_t to = random() % accounts;
    const long amount = static_cast<long>(random() % 100);
    bank.submit(turnkey::keys{from, to}, [&balance, from, to, amount] {
      if (balance[from] < amount) return;  // nobody overdraws
      balance[from] -= amount;
      balance[to] += amount;
    });
  }

  // Any number of keys: nine accounts pay half of what they have to a tenth one, while the transfers go on.
  const std::vector<std::size_t> payers{14, 15, 92, 65, 35, 89, 79, 32, 38};
  std::vector<std::size_t> all_ten = payers;
  all_ten.push_back(3);
  bank.submit(turnkey::keys{all_ten}, [&balance, &payers] {
    for (const std::size_t each : payers) {
      const long half = balance[each] / 2;
      balance[each] -= half;
      balance[3] += half;
    }
  });

  bank.drain();
  long sum = 0;
  bool overdrawn = false;
  for (const long each : balance) {
    sum += each;
    overdrawn = overdrawn || each < 0;
  }
  std::cout << bank.stats().succeeded << " tasks on " << accounts << " accounts: the sum was "
            << at_first * static_cast<long>(accounts) << " and is " << sum << ", and "
            << (overdrawn ? "somebody has overdrawn" : "nobody has overdrawn") << "\n";
}
