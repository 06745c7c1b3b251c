// See ticket_queue.hpp.
#include "collective/parameter_server/ticket_queue.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

TicketQueue::TicketQueue(const UpdatePolicy& policy, std::size_t workers)
    : policy_(policy), slices_(policy.training_workers(workers)), held_(workers) {}

void TicketQueue::open(const Range& steps) {
  end_ = steps.end;
  next_ = policy_.is_asynchronous ? steps.begin * slices_ : steps.begin;
  told_ = steps.begin;
  std::ranges::fill(held_, std::nullopt);
}

void TicketQueue::close() {
  end_ = std::min(end_, policy_.is_asynchronous ? (next_ + slices_ - 1) / slices_ : next_ + 1);
}

void TicketQueue::forget(std::size_t worker) {
  std::erase(waiting_, worker);
  const std::optional<Held> held = std::exchange(held_.at(worker), std::nullopt);
  if (held) returned_.push_back(held->ticket);
}

void TicketQueue::ask(std::size_t worker) {
  if (policy_.is_asynchronous) held_.at(worker).reset();
  waiting_.push_back(worker);
}

void TicketQueue::end_step() {
  if (!policy_.is_asynchronous) ++next_;
}

std::optional<TicketQueue::Grant> TicketQueue::next_grant() {
  for (auto worker = waiting_.begin(); worker != waiting_.end(); ++worker) {
    const auto grant = policy_.is_asynchronous ? grant_asynchronous(*worker) : grant_synchronous(*worker);
    if (!grant) continue;
    waiting_.erase(worker);
    return grant;
  }
  return std::nullopt;
}

std::optional<TicketQueue::Grant> TicketQueue::grant_asynchronous(std::size_t worker) {
  if (!policy_.trains(worker)) return grant_coordinator();
  if (are_all_handed_out()) return Grant{worker, end_, 0, true};
  if (exceeds_staleness()) return std::nullopt;
  const auto others = static_cast<std::size_t>(std::ranges::count_if(held_, [](const auto& held) { return !!held; }));
  std::uint64_t ticket = next_;
  if (returned_.empty()) {
    ++next_;
  } else {
    ticket = returned_.front();
    returned_.pop_front();
  }
  held_[worker] = Held{ticket, handed_out_++, others};
  return Grant{worker, ticket / slices_, ticket % slices_, false};
}

std::optional<TicketQueue::Grant> TicketQueue::grant_coordinator() {
  const std::uint64_t begun = (next_ + slices_ - 1) / slices_;
  if (begun > std::exchange(told_, begun)) return Grant{0, begun - 1, slices_, false};
  if (are_all_handed_out()) return Grant{0, end_, 0, true};
  return std::nullopt;
}

/// Whether another ticket could make a gradient too stale. The worst case counts: all tickets that were held when one
/// was handed out, and all that were handed out since, are updates before it.
bool TicketQueue::exceeds_staleness() const {
  if (!policy_.max_staleness) return false;
  std::uint64_t others = 0;
  for (const std::optional<Held>& held : held_) {
    if (!held) continue;
    ++others;
    if (handed_out_ - held->number + held->before > *policy_.max_staleness) return true;
  }
  return others > *policy_.max_staleness;
}

/// A worker that has computed its slice of the next step waits until the servers have made it.
std::optional<TicketQueue::Grant> TicketQueue::grant_synchronous(std::size_t worker) {
  if (next_ >= end_) return Grant{worker, end_, 0, true};
  if (held_[worker] && held_[worker]->ticket == next_) return std::nullopt;
  held_[worker] = Held{.ticket = next_};
  return Grant{worker, next_, worker, false};
}

}  // namespace lockstep
