// See task_group.hpp.
#include "collective/parameter_server/task_group.hpp"

#include "core/error_of_code.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

constexpr int poll_ms = 10;
constexpr int temporary = static_cast<int>(ExitCode::temporary);
constexpr int idle_poll_ms = 100;
constexpr double idle_s = 0.1;
constexpr double return_s = 30;  // a launcher starts a lost trainer again within a second or two
constexpr std::size_t max_completed_bytes = std::size_t{1} << 30U;

}  // namespace

TaskGroup::TaskGroup(std::shared_ptr<TaskLinks> links, WaitPolicy policy, bool workers_may_return)
    : links_(std::move(links)), policy_(std::move(policy)), workers_may_return_(workers_may_return) {
  policy_.spin = false;  // poll() waits
  if (is_server() && workers_may_return) {
    links_->set_returns({.may_return = [this](std::size_t task) { return may_return(task); },
                         .on_lost = [this](std::size_t task, const std::string& why) { forget(task, why); },
                         .on_returned = [this](std::size_t task) { take_back(task); }});
  }
  if (!has_returned()) return;
  wait([this] { return is_replay_complete_ || is_over_; },
       [this] { return fmt::format("{} to tell what has happened", name_of_server(0)); });
}

/// [first, end) of the tasks.
std::pair<std::size_t, std::size_t> TaskGroup::tasks_of(Subgroup subgroup) const {
  switch (subgroup) {
    case Subgroup::all: return {0, workers() + servers()};
    case Subgroup::servers: return {workers(), workers() + servers()};
    case Subgroup::workers:
    case Subgroup::end: break;
  }
  return {0, workers()};
}

std::vector<std::string> TaskGroup::exchange(Subgroup subgroup, std::string bytes, const char* what) {
  const auto group = static_cast<std::uint64_t>(subgroup);
  const std::uint64_t number = next_number_.at(group)++;
  const std::pair key{group, number};
  if (results_.contains(key)) return std::move(results_.extract(key).mapped());  // a replay
  const std::size_t hub = links_->task_of_server(0);
  if (links_->own_task() == hub) {
    take_part(hub, {group, number, std::move(bytes)});
  } else {
    links_->send(hub, to_frame(Contribution{group, number, std::move(bytes)}));
  }
  wait([&] { return results_.contains(key); },
       [&] {
         std::string whom = name_of(hub);
         if (const auto gathering = gatherings_.find(key); gathering != gatherings_.end()) {
           const auto& parts = gathering->second.parts;
           const auto missing = std::ranges::find_if(parts, [](const auto& part) { return !part; });
           whom = name_of(tasks_of(subgroup).first + static_cast<std::size_t>(missing - parts.begin()));
         } else if (subgroup != Subgroup::servers) {
           whom += " and the tasks that it waits for";
         }
         return fmt::format("{} to join {}", whom, what);
       });
  return std::move(results_.extract(key).mapped());
}

void TaskGroup::take_part(std::size_t task, Contribution&& part) {
  if (part.group >= next_number_.size()) throw DataError("it takes part in an unknown collective");
  const auto [first, end] = tasks_of(static_cast<Subgroup>(part.group));
  if (task < first || task >= end) throw DataError("it takes part in a collective of other tasks");
  const std::pair key{part.group, part.number};
  Gathering& gathering = gatherings_[key];
  gathering.parts.resize(end - first);
  std::optional<std::string>& its = gathering.parts[task - first];
  if (its) throw DataError("it takes part in a collective twice");
  its = std::move(part.bytes);
  if (!std::ranges::all_of(gathering.parts, [](const auto& each) { return each.has_value(); })) return;
  Contributions all{part.group, part.number, {}};
  for (std::optional<std::string>& each : gathering.parts) all.parts.push_back(*std::move(each));
  gatherings_.erase(key);
  if (static_cast<Subgroup>(part.group) == Subgroup::end) {
    set_over();
    for (std::size_t server = 1; server < servers(); ++server) send_to_server(server, {JobIsOver::kind, ""});
  }
  const SharedBytes bytes = encode_shared(to_frame(all));
  if (workers_may_return_) {
    completed_.push_back(bytes);
    completed_bytes_ += bytes->size();
    if (completed_bytes_ > max_completed_bytes) {
      workers_may_return_ = false;
      completed_.clear();
    }
  }
  for (std::size_t other = first; other < end; ++other) {
    if (other != links_->own_task()) links_->send(other, bytes);
  }
  if (first <= links_->own_task() && links_->own_task() < end) results_[key] = std::move(all.parts);
}

void TaskGroup::forget(std::size_t task, const std::string& why) {
  const auto& goodbye = links_->goodbye_of(task);
  const bool ends_the_job = goodbye && goodbye->code != temporary && !links_->has_returned(task);
  if (!ends_the_job && (!goodbye || !goodbye->message.empty())) {
    log_warning(fmt::format("lost {}: {}; the other workers train on, and wait for it at the end of the round",
                            name_of(task), goodbye ? goodbye->message : why));
  }
  for (auto& [key, gathering] : gatherings_) {
    const auto [first, end] = tasks_of(static_cast<Subgroup>(key.first));
    if (first <= task && task < end) gathering.parts[task - first].reset();
  }
  std::erase_if(early_, [task](const auto& early) { return early.first == task; });
  forget_in_models(task);
}

void TaskGroup::take_back(std::size_t task) {
  forget_in_models(task);
  if (links_->own_task() != links_->task_of_server(0)) return;
  log_warning(fmt::format("{} is back", name_of(task)));
  for (const SharedBytes& bytes : completed_) links_->send(task, bytes);
  links_->send(task, {EndOfReplay::kind, ""});
}

void TaskGroup::forget_in_models(std::size_t task) {
  for (const auto& [model, receiver] : receivers_) {
    if (receiver.forget) receiver.forget(task);
  }
}

bool TaskGroup::is_replaying() const {
  const auto group = static_cast<std::uint64_t>(participants());
  return has_returned() && results_.contains({group, next_number_.at(group)});
}

void TaskGroup::begin_service() {
  if (is_serving_) return;
  static_cast<void>(exchange(Subgroup::all, "", "the beginning of training"));
  is_serving_ = true;
}

void TaskGroup::finish() {
  static_cast<void>(exchange(Subgroup::end, "", "the end of the job"));
  is_over_ = true;
}

void TaskGroup::say_goodbye() { links_->say_goodbye({0, ""}); }

void TaskGroup::set_over() {
  is_over_ = true;
  links_->set_over({JobIsOver::kind, ""});
}

void TaskGroup::see_workers_off() {
  if (!is_over_) return;  // then all of them have said goodbye
  const Deadline deadline = Deadline::after(return_s);
  Deadline tell_at = Deadline::after(1);
  while (!deadline.passed()) {
    const std::size_t present = first_present();
    if (present == workers()) return;
    if (tell_at.passed()) {
      log_warning(fmt::format("the job is over; waiting up to {:g} s for {} to know", return_s, name_of(present)));
      tell_at = Deadline::never();
    }
    poll(poll_ms);
  }
}

std::size_t TaskGroup::first_present() const {
  std::size_t worker = 0;
  while (worker < workers() && links_->goodbye_of(worker)) ++worker;
  return worker;
}

bool TaskGroup::is_over() const { return is_over_ || first_present() == workers(); }

int TaskGroup::code() const {
  int code = 0;
  for (std::size_t worker = 0; worker < workers() && !is_over_; ++worker) {
    if (const auto& goodbye = links_->goodbye_of(worker)) code = std::max(code, goodbye->code);
  }
  return code;
}

std::uint64_t TaskGroup::add_model(Receiver receiver) {
  const std::uint64_t model = next_model_++;
  const Receiver& its = receivers_[model] = std::move(receiver);
  for (auto& [task, message] : std::exchange(early_, {})) {
    if (message.model == model) {
      its.receive(task, message);
    } else {
      early_.emplace_back(task, std::move(message));
    }
  }
  return model;
}

void TaskGroup::poll(int timeout_ms) {
  links_->poll(
      timeout_ms, [this](std::size_t task, Frame&& frame) { receive(task, std::move(frame)); },
      [this](std::size_t task) { return placer_of(task); });
  require_no_failure();
}

Placer TaskGroup::placer_of(std::size_t task) const {
  const auto find = [this, task](std::uint16_t kind, std::string_view beginning) -> Places {
    Frame frame{kind, std::string(beginning)};
    if (!is_model_message(frame)) return {};
    const ModelMessage message = to_model_message(std::move(frame));
    const auto receiver = receivers_.find(message.model);
    return receiver == receivers_.end() ? Places() : receiver->second.place(task, message);
  };
  return {ModelMessage::beginning_bytes, find};
}

void TaskGroup::remove_model(std::uint64_t model) {
  receivers_.erase(model);
  links_->detach();
}

void TaskGroup::receive(std::size_t task, Frame&& frame) {
  if (is_model_message(frame)) {
    ModelMessage message = to_model_message(std::move(frame));
    const auto receiver = receivers_.find(message.model);
    if (receiver != receivers_.end()) {
      receiver->second.receive(task, message);
    } else if (message.model >= next_model_) {
      early_.emplace_back(task, std::move(message));
    }  // else of a model that no longer exists
    return;
  }
  switch (frame.kind) {
    case Contribution::kind:
      if (links_->own_task() != links_->task_of_server(0)) throw DataError("it takes this task for server 0");
      return take_part(task, to_contribution(frame));
    case Contributions::kind: {
      Contributions all = to_contributions(frame);
      if (static_cast<Subgroup>(all.group) == Subgroup::end) is_over_ = true;
      results_[{all.group, all.number}] = std::move(all.parts);
      return;
    }
    case StopTask::kind: {
      constexpr auto most = static_cast<std::uint64_t>(StopRequest::after_this_step);
      stop_request_ = std::max(stop_request_, static_cast<StopRequest>(std::min(to_stop_task(frame).request, most)));
      return;
    }
    case EndOfReplay::kind: is_replay_complete_ = true; return;
    case JobIsOver::kind: return set_over();
    default: throw DataError(fmt::format("it sent a message of the unknown kind {}", frame.kind));
  }
}

/// A task that fails tells the others, so all end with its code.
void TaskGroup::require_no_failure() const {
  if (is_over_) return;
  for (std::size_t task = 0; task < workers() + servers(); ++task) {
    const auto& goodbye = links_->goodbye_of(task);
    const bool is_awaited = is_server() && may_return(task);  // another successor, if this one may not take part
    if (goodbye && is_awaited && (goodbye->code == temporary || links_->has_returned(task))) continue;
    if (goodbye && !goodbye->message.empty())
      throw_error_of_code(static_cast<std::uint64_t>(goodbye->code),
                          fmt::format("{} ended: {}", name_of(task), goodbye->message));
    if (goodbye && goodbye->code != 0 && task >= workers())
      throw PeerError(fmt::format("lost {}: it has ended", name_of(task)));
  }
}

void TaskGroup::wait(const std::function<bool()>& is_done, const std::function<std::string()>& what) {
  if (is_done()) return;
  poll(0);
  if (is_done()) return;
  WaitLoop wait(policy_);
  while (true) {
    poll(poll_ms);
    if (is_done()) break;
    if (wait.pause()) wait.report(what());
  }
  waited_ += wait.seconds();
}

void TaskGroup::wait_idle(const std::function<bool()>& is_done, const std::function<void()>& idle) {
  Deadline idle_at = Deadline::after(idle_s);
  while (!is_done()) {
    poll(idle_poll_ms);
    if (!idle_at.passed()) continue;
    idle_at = Deadline::after(idle_s);
    idle();
  }
}

void TaskGroup::request_stop(StopRequest request) {
  if (request <= stop_request_) return;
  stop_request_ = request;
  links_->send(0, to_frame(StopTask{static_cast<std::uint64_t>(request)}));
}

}  // namespace lockstep
