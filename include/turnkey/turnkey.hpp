// turnkey: a keyed scheduler. Tasks are submitted under a key with a policy and run on the executor that the user
// already has, so that what belongs together keeps its order or its exclusion, through failures and retries.
//
// The house. A header includes only lower floors.
//
//   floor  file                       what it is
//     8    coroutine.hpp              a coroutine holds a lease (not included here)
//          future.hpp                 who waits for a result (not included here)
//          task_error.hpp             how their tasks ended, as exceptions (not included here)
//     7    scheduler.hpp              the door: what a user calls, and what each call promises
//     -    consumer.hpp               the same door for messages and batches (not included here)
//          batch.hpp                  what its handler sees
//          detail/consumer_run.hpp    what becomes of messages in an attempt
//          detail/consumer_core.hpp   which message a task stands for
//          detail/message_queue.hpp   the waiting messages of a key, side by side
//     -    thread_pool.hpp            an executor for those who have none
//     -    testing.hpp                an executor and a clock that move when told (not included here)
//     -    metrics.hpp                stats() as a page for Prometheus (not included here)
//     -    breaker.hpp                an observer that pauses when too much fails (not included here)
//     -    watermark.hpp              up to where all is finished, for logs and brokers (not included here)
//     -    trace.hpp                  an observer that draws for Perfetto (not included here)
//          detail/trace_json.hpp      the drawing, as a viewer reads it
//          detail/trace_picture.hpp   from events to slices and tracks
//          detail/trace_log.hpp       the newest events, in bounded memory
//          detail/text.hpp            keys and numbers as text
//     6    detail/keyed_engine.hpp    the engine with the type of its keys: a submit, step by step
//          detail/listing.hpp         what lists keys and tasks, and says why one does not run
//          detail/control.hpp         pause, steps, limit, pace
//          detail/ending.hpp          drain, close, stop; what the engine tells of itself
//          detail/dispatch.hpp        permits, turns, wakes: how tasks get to run
//          detail/leases.hpp          completions, and the time of leases
//          detail/settle.hpp          what becomes of a task after an attempt; cancel, redrive, discard
//          detail/several.hpp         tasks of several keys: when they reserve and start
//          detail/visit.hpp           one visit to a shard's lock, and what follows from it
//          detail/engine.hpp          the corridor: all of the above, declared
//          task_record.hpp            tasks that left unfinished, as values
//     5    detail/shard.hpp           a lock, and what it guards: keys, tasks, ids, timers, the dead
//          detail/ready_queue.hpp     the fair order of lines
//          detail/valve.hpp           how many may start: the pause, the limit, the pace
//          detail/permits.hpp         which permits are out, and who is inside
//          detail/alarm.hpp           asks the time source for the earliest wake
//          detail/erased_executor.hpp the user's executor behind a virtual call
//          detail/waiters.hpp         where drain, stop and submit_for sleep
//     4    detail/key_slot.hpp        THE HEART: one key's lines, lease and holds; every ordering rule
//     3    detail/task_list.hpp       a list through links in the tasks
//          detail/task_heap.hpp       a priority queue through links in the tasks
//          detail/id_index.hpp        from an id to its task
//          detail/slot_table.hpp      from a key's hash to its slot
//          detail/group.hpp           a task of several keys: what stands in each line
//     2    detail/task.hpp            the thing that travels
//          detail/callable.hpp        what is taken for a callback
//          detail/fate.hpp            who wants to know how a task ends
//          detail/cell_pool.hpp       memory for things of one size
//          attempt.hpp                what a callback sees of its attempt
//     1    options.hpp event.hpp inspect.hpp executor.hpp time_source.hpp retry_policy.hpp pace.hpp outcome.hpp
//     0    policy.hpp keys.hpp detail/sync.hpp detail/config.hpp
#pragma once

#include <turnkey/attempt.hpp>
#include <turnkey/event.hpp>
#include <turnkey/executor.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/keys.hpp>
#include <turnkey/options.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/pace.hpp>
#include <turnkey/policy.hpp>
#include <turnkey/retry_policy.hpp>
#include <turnkey/scheduler.hpp>
#include <turnkey/task_record.hpp>
#include <turnkey/thread_pool.hpp>
#include <turnkey/time_source.hpp>
