#include <turnkey/detail/key_slot.hpp>

#include "support/tasks.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace turnkey::detail;
using support::ids;
using support::make_task;
using support::task_ptr;
using turnkey::policy;
using turnkey::time_point;

// One slot and its tasks, named by their ids.
class line {
 public:
  task& arrive(policy p) {
    task& t = add(p);
    slot.arrive(t);
    return t;
  }
  task& arrive_resting(policy p) {
    task& t = add(p);
    slot.arrive_resting(t);
    return t;
  }
  // Starts next(); its id, 0 when there is none.
  std::uint64_t start() {
    task* const t = slot.next();
    if (t == nullptr) return 0;
    slot.start(*t);
    return t->id;
  }
  // Starts and finishes all that may start, one after the other.
  ids run_out() {
    ids order;
    while (task* const t = slot.next()) {
      slot.start(*t);
      slot.finish(*t);
      order.push_back(t->id);
    }
    return order;
  }
  void rest(task& t, turnkey::duration due) {
    slot.rest(t);
    t.when = time_point{due};
  }
  void kill(task& t) {
    slot.finish(t);
    t.place = place::dead;
    slot.hold(t);
  }

  key_slot slot{std::uint64_t{1}};

 private:
  task& add(policy p) {
    tasks_.push_back(make_task(tasks_.size() + 1, p));
    return *tasks_.back();
  }
  std::vector<task_ptr> tasks_;
};

constexpr policy all_policies[] = {policy::parallel, policy::exclusive, policy::ordered};

}  // namespace

TEST_CASE("2.9 key_slot: without retries each policy starts by id") {
  for (const policy p : all_policies) {
    line l;
    for (int i = 0; i != 4; ++i) l.arrive(p);
    CHECK(l.run_out() == ids{1, 2, 3, 4});
    CHECK(!l.slot.in_use());
  }
}

TEST_CASE("2 key_slot: while one runs, parallel tasks start, exclusive and ordered ones do not") {
  for (const policy running : {policy::exclusive, policy::ordered})
    for (const policy p : all_policies) {
      line l;
      l.arrive(running);
      CHECK(l.start() == 1);
      l.arrive(p);
      CHECK(l.start() == (p == policy::parallel ? 2 : 0));
    }
}

TEST_CASE("2.1 key_slot: a task that rests holds no lease, and its turn comes again when it is due") {
  line l;
  task& first = l.arrive(policy::exclusive);
  l.arrive(policy::exclusive);
  CHECK(l.start() == 1);
  l.rest(first, 1s);
  CHECK(l.slot.lease() == nullptr);
  CHECK(l.start() == 2);
  l.slot.come_back(first);
  CHECK(l.start() == 0);
}

TEST_CASE("2.1 key_slot: ordered tasks stay behind one that rests; exclusive and parallel ones pass it") {
  line l;
  task& first = l.arrive(policy::ordered);
  l.start();
  l.arrive(policy::ordered);
  l.arrive(policy::exclusive);
  l.arrive(policy::parallel);
  l.rest(first, 1s);
  CHECK(l.run_out() == ids{3, 4});
  l.slot.come_back(first);
  CHECK(l.run_out() == ids{1, 2});
}

TEST_CASE("2.9 key_slot: due retries go first, by due time and then id") {
  line l;
  std::vector<task*> tasks;
  for (int i = 0; i != 4; ++i) tasks.push_back(&l.arrive(policy::parallel));
  for (int i = 0; i != 3; ++i) l.start();
  l.rest(*tasks[0], 2s);
  l.rest(*tasks[1], 1s);
  l.rest(*tasks[2], 1s);
  l.arrive(policy::exclusive);
  for (const std::size_t i : {2U, 0U, 1U}) l.slot.come_back(*tasks[i]);
  CHECK(l.run_out() == ids{2, 3, 1, 4, 5});
}

TEST_CASE("3.4 key_slot: what was delayed before its first attempt has the place of its id") {
  line l;
  l.arrive(policy::exclusive);
  task& delayed = l.arrive_resting(policy::exclusive);
  l.arrive(policy::parallel);
  CHECK(l.start() == 1);
  CHECK(l.slot.ready() == 1);
  delayed.when = time_point{1s};
  l.slot.come_back(delayed);
  l.slot.finish(*l.slot.first_task());
  CHECK(l.run_out() == ids{2, 3});
}

TEST_CASE("3 key_slot: postponed by nothing goes behind what is ready, before what comes later") {
  for (const policy p : {policy::parallel, policy::exclusive}) {
    line l;
    task& first = l.arrive(p);
    l.arrive(p);
    l.start();
    l.slot.come_back_behind(first, 2);
    l.arrive(p);
    CHECK(l.run_out() == ids{2, 1, 3});
  }
}

TEST_CASE("2.9 key_slot: an ordered task that comes back is still the first by its id") {
  line l;
  task& first = l.arrive(policy::ordered);
  l.arrive(policy::ordered);
  l.start();
  l.slot.come_back_behind(first, 2);
  CHECK(l.run_out() == ids{1, 2});
}

TEST_CASE("2.2, 6.5 key_slot: when the head leaves from wherever it is, the next may start") {
  for (int where = 0; where != 3; ++where) {
    line l;
    task& head = where == 2 ? l.arrive_resting(policy::ordered) : l.arrive(policy::ordered);
    l.arrive(policy::ordered);
    if (where == 1) l.start();
    l.slot.finish(head);
    CHECK(l.run_out() == ids{2});
  }
}

TEST_CASE("5.3 key_slot: a dead holder keeps back larger ids of every policy, not smaller ones") {
  for (const policy p : all_policies) {
    line l;
    task& small = l.arrive_resting(p);
    task& holder = l.arrive(policy::exclusive);
    l.arrive(p);
    l.slot.start(*l.slot.next());
    l.kill(holder);
    CHECK(l.slot.next() == nullptr);
    CHECK(l.slot.ready() == 0);
    l.slot.come_back(small);
    CHECK(l.run_out() == ids{1});
    CHECK(l.slot.in_use());
    CHECK(l.slot.release());
    CHECK(!l.slot.release());
    CHECK(l.run_out() == ids{3});
  }
}

TEST_CASE("5.3 key_slot: of several holders the smallest counts, in whatever order they are dealt with") {
  for (const bool smallest_first : {true, false}) {
    line l;
    task& a = l.arrive(policy::exclusive);
    task& b = l.arrive(policy::exclusive);
    l.arrive(policy::parallel);
    l.start();
    l.rest(a, 1s);
    l.start();
    l.kill(b);
    CHECK(l.slot.held_by() == 2);
    l.slot.come_back(a);
    CHECK(l.start() == 1);
    l.kill(a);
    CHECK(l.slot.held_by() == 1);
    l.slot.unhold(smallest_first ? a : b);
    CHECK(l.slot.held_by() == (smallest_first ? 2 : 1));
    CHECK(l.slot.next() == nullptr);
    l.slot.unhold(smallest_first ? b : a);
    CHECK(l.run_out() == ids{3});
  }
}

TEST_CASE("5.3 key_slot: a holder that left the store holds until release") {
  line l;
  task& holder = l.arrive(policy::ordered);
  l.arrive(policy::parallel);
  l.slot.start(holder);
  l.kill(holder);
  l.slot.keep_hold_of(holder);
  l.slot.unhold(holder);
  CHECK(l.slot.held_by() == 1);
  CHECK(l.slot.next() == nullptr);
  CHECK(l.slot.release());
  CHECK(l.run_out() == ids{2});
}

TEST_CASE("5.3 key_slot: what came back under a hold keeps its order, and may leave meanwhile") {
  line l;
  task& holder = l.arrive(policy::exclusive);
  std::vector<task*> tasks;
  for (int i = 0; i != 5; ++i) tasks.push_back(&l.arrive(policy::parallel));
  for (int i = 0; i != 6; ++i) l.start();
  for (int i = 0; i != 5; ++i) l.rest(*tasks[static_cast<std::size_t>(i)], 9s - i * 1s);
  l.kill(holder);
  for (task* t : tasks) {
    l.slot.come_back(*t);
    CHECK(l.slot.next() == nullptr);
  }
  l.slot.finish(*tasks[4]);  // the first of those kept back
  l.slot.finish(*tasks[1]);  // one in their middle
  CHECK(l.slot.release());
  CHECK(l.run_out() == ids{5, 4, 2});
}

TEST_CASE("5.2 key_slot: a redriven task has the place of its id again") {
  for (const policy p : all_policies) {
    line l;
    l.arrive(p);
    task& second = l.arrive(p);
    l.arrive(p);
    CHECK(l.start() == 1);
    l.slot.finish(*l.slot.first_task());
    CHECK(l.start() == 2);
    l.slot.finish(second);
    second.place = place::dead;
    l.slot.revive(second);
    CHECK(l.run_out() == ids{2, 3});
  }
}

TEST_CASE("9.1 key_slot: ready counts what the lease would go to and the parallel tasks in line") {
  line l;
  l.arrive(policy::exclusive);
  l.arrive(policy::exclusive);
  task& third = l.arrive(policy::parallel);
  l.arrive(policy::parallel);
  CHECK(l.slot.ready() == 3);
  CHECK(l.slot.is_ready(*l.slot.first_task()));
  CHECK(!l.slot.is_ready(*key_slot::task_after(*l.slot.first_task())));
  CHECK(l.slot.is_ready(third));
  l.start();
  CHECK(l.slot.ready() == 2);
  CHECK(l.slot.depth() == 4);
}

// ---- a pause of the key

TEST_CASE("6.1 key_slot: paused, it starts nothing of any policy, and nothing in it is ready") {
  for (const policy p : all_policies) {
    line l;
    task& first = l.arrive(p);
    CHECK(l.slot.pause());
    CHECK(!l.slot.pause());
    CHECK(l.slot.paused());
    task& second = l.arrive(p);
    CHECK(l.slot.next() == nullptr);
    CHECK(l.slot.ready() == 0);
    for (const task* t : {&first, &second}) CHECK(!l.slot.is_ready(*t));
    CHECK(key_slot::state_of(first) == turnkey::task_state::waiting);
    CHECK(l.slot.resume());
    CHECK(!l.slot.resume());
    CHECK(l.slot.is_ready(first));
    CHECK(l.run_out() == ids{1, 2});
  }
}

TEST_CASE("6.1, 10.5 key_slot: a pause alone needs the key") {
  line l;
  CHECK(!l.slot.in_use());
  l.slot.pause();
  CHECK(l.slot.in_use());
  l.slot.resume();
  CHECK(!l.slot.in_use());
}

TEST_CASE("6.1 key_slot: what runs when the pause comes ends as ever, and what comes back keeps its order") {
  line l;
  task& first = l.arrive(policy::exclusive);
  task& second = l.arrive(policy::exclusive);
  l.arrive(policy::exclusive);
  l.start();
  l.slot.pause();
  l.rest(first, 2s);
  CHECK(l.slot.lease() == nullptr);
  l.slot.come_back(first);
  CHECK(l.start() == 0);
  l.slot.finish(second);
  l.slot.resume();
  CHECK(l.run_out() == ids{1, 3});
}

TEST_CASE("6.6 key_slot: pause and hold do not undo each other") {
  for (const bool resumed_first : {true, false}) {
    line l;
    task& holder = l.arrive(policy::exclusive);
    l.arrive(policy::parallel);
    l.slot.start(holder);
    l.kill(holder);
    l.slot.pause();
    CHECK(l.slot.held());
    CHECK((resumed_first ? l.slot.resume() : l.slot.release()));
    CHECK(l.slot.paused() == !resumed_first);
    CHECK(l.slot.held() == resumed_first);
    CHECK(l.start() == 0);
    CHECK((resumed_first ? l.slot.release() : l.slot.resume()));
    CHECK(l.run_out() == ids{2});
  }
}

TEST_CASE("6.2 key_slot: each parallel task that is ready may start, from any place in its line") {
  for (const std::uint64_t chosen : {1U, 2U, 3U, 4U}) {
    line l;
    std::vector<task*> tasks;
    for (int i = 0; i != 4; ++i) tasks.push_back(&l.arrive(policy::parallel));
    for (int i = 0; i != 2; ++i) l.start();
    for (std::size_t i = 0; i != 2; ++i) {
      l.rest(*tasks[i], 1s);
      l.slot.come_back(*tasks[i]);
    }
    l.slot.start(*tasks[chosen - 1]);
    l.slot.finish(*tasks[chosen - 1]);
    ids rest{1, 2, 3, 4};
    std::erase(rest, chosen);
    CHECK(l.run_out() == rest);
  }
}

// ---- why

namespace {

using reason = turnkey::why::reason;
using turnkey::task_id;
using turnkey::task_state;

}  // namespace

TEST_CASE("9.2 key_slot: each reason of the key names what it is about") {
  line l;
  task& lessee = l.arrive(policy::exclusive);
  task& second = l.arrive(policy::exclusive);
  l.slot.start(lessee);
  lessee.when = time_point{7s};
  lessee.failed = 2;
  const turnkey::why lease = l.slot.why_not_started(second);
  CHECK(lease.kind == reason::lease);
  CHECK(lease.task == task_id{1});
  CHECK(lease.state == task_state::running);
  CHECK(lease.attempt == 3);
  CHECK(lease.time == time_point{7s});

  task& third = l.arrive(policy::ordered);
  const turnkey::why predecessor = l.slot.why_not_started(third);
  CHECK(predecessor.kind == reason::predecessor);
  CHECK(predecessor.task == task_id{1});
  CHECK(predecessor.state == task_state::running);

  task& fourth = l.arrive_resting(policy::ordered);
  fourth.when = time_point{9s};
  const turnkey::why due = l.slot.why_not_started(fourth);
  CHECK(due.kind == reason::not_due);
  CHECK(due.time == time_point{9s});

  l.slot.pause();
  for (const task* t : {&second, &third, &fourth}) CHECK(l.slot.why_not_started(*t).kind == reason::key_paused);

  l.kill(lessee);
  for (const task* t : {&second, &third, &fourth}) {
    const turnkey::why held = l.slot.why_not_started(*t);
    CHECK(held.kind == reason::key_held);
    CHECK(held.task == task_id{1});
    CHECK(held.state == task_state::dead);
  }
}

TEST_CASE("9.2 key_slot: a hold is no reason for smaller ids") {
  line l;
  task& small = l.arrive_resting(policy::exclusive);
  task& holder = l.arrive(policy::exclusive);
  l.slot.start(holder);
  l.kill(holder);
  CHECK(l.slot.why_not_started(small).kind == reason::not_due);
  l.slot.come_back(small);
  CHECK(l.slot.why_not_started(small).kind == reason::turn);
}

TEST_CASE("9.2 key_slot: a lease is no reason for a parallel task, a predecessor none for an exclusive one") {
  line l;
  task& resting = l.arrive_resting(policy::ordered);
  resting.when = time_point{1s};
  task& exclusive = l.arrive(policy::exclusive);
  task& parallel = l.arrive(policy::parallel);
  CHECK(l.slot.why_not_started(exclusive).kind == reason::turn);
  CHECK(l.slot.why_not_started(parallel).kind == reason::turn);
  l.slot.start(exclusive);
  CHECK(l.slot.why_not_started(parallel).kind == reason::turn);
}

TEST_CASE("9.2 key_slot: the predecessor that is named is the first unfinished one, in its state") {
  line l;
  task& first = l.arrive(policy::parallel);
  task& second = l.arrive(policy::exclusive);
  task& last = l.arrive(policy::ordered);
  CHECK(l.slot.why_not_started(last).task == task_id{1});
  CHECK(l.slot.why_not_started(last).state == task_state::ready);
  l.slot.start(first);
  CHECK(l.slot.why_not_started(last).state == task_state::running);
  l.rest(first, 1s);
  CHECK(l.slot.why_not_started(last).state == task_state::delayed);
  l.slot.finish(first);
  CHECK(l.slot.why_not_started(last).task == task_id{2});
  l.slot.finish(second);
  CHECK(l.slot.why_not_started(last).kind == reason::turn);
}

TEST_CASE("9.2 key_slot: a task that was taken out of its line is undone") {
  line l;
  task& t = l.arrive(policy::ordered);
  CHECK(key_slot::state_of(t) == turnkey::task_state::ready);
  l.slot.finish(t);
  for (const place where : {place::leaving, place::withdrawn}) {
    t.place = where;
    CHECK(key_slot::state_of(t) == turnkey::task_state::undone);
  }
}

TEST_CASE("5.3 key_slot: the smallest holder counts, in whatever order they died") {
  for (const bool upwards : {false, true}) {
    line l;
    std::vector<task*> tasks;
    for (int i = 0; i != 3; ++i) tasks.push_back(&l.arrive(policy::exclusive));
    task& last = l.arrive(policy::exclusive);
    for (task* const t : tasks) l.slot.start(*t), l.slot.finish(*t);
    if (!upwards) std::swap(tasks[0], tasks[2]);
    for (task* const t : tasks) {
      t->place = place::dead;
      l.slot.hold(*t);
    }
    for (std::uint64_t holder = 1; holder <= 3; ++holder) {
      CHECK(l.slot.why_not_started(last).task == turnkey::task_id{holder});
      for (task* const t : tasks)
        if (t->id == holder) l.slot.unhold(*t);
    }
    CHECK(l.slot.next() == &last);
  }
}
