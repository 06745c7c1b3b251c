// See launcher.hpp. launcher_ending.cpp ends trainers.
#include "cluster/launcher/launcher.hpp"

#include "cluster/config/job_token.hpp"
#include "cluster/launcher/exported_variables.hpp"
#include "cluster/pmix/trainer_environment.hpp"
#include "cluster/rendezvous/job_status.hpp"
#include "cluster/status/process_status.hpp"
#include "cluster/status/status_format.hpp"
#include "core/available_cpus.hpp"
#include "core/cgroup.hpp"
#include "core/clock.hpp"
#include "core/digest.hpp"
#include "core/fault_point.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr const char* own_program = "/proc/self/exe";

/// Turns a cluster without tasks into a cluster of one task, on any free port.
ClusterSpec with_a_task(const ClusterSpec& cluster) {
  if (!cluster.tasks.empty()) return cluster;
  ClusterSpec alone;
  alone.tasks.push_back({TaskType::worker, 0, {"127.0.0.1", 0}});
  alone.rank = 0;
  return alone;
}

/// True if this process inherited the signal as ignored, e.g. from nohup or as a script's background job.
bool is_ignored(int number) {
  struct sigaction now {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

Socket receive_signals() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  (void)std::signal(SIGCHLD, SIG_DFL);  // ignoring it would discard exit statuses
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) {
    if (!is_ignored(number)) sigaddset(&handled, number);
  }
  Socket signals(sigprocmask(SIG_BLOCK, &handled, nullptr) == 0 ? signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC)
                                                                : -1);
  if (!signals) throw InternalError(fmt::format("signalfd failed: {}", std::generic_category().message(errno)));
  return signals;
}

/// As poll(), which refuses more descriptors than the process may open, and that limit may have become lower.
int poll_all(std::vector<pollfd>& polled, int timeout) {
  const int ready = poll(polled.data(), polled.size(), timeout);
  if (ready >= 0 || errno != EINVAL) return ready;
  int found = 0;
  for (pollfd& entry : polled) found += std::max(0, poll(&entry, 1, 0));
  constexpr int pause_ms = 10;
  if (found == 0) (void)poll(nullptr, 0, pause_ms);
  return found;
}

std::vector<std::string> resolve_command(std::vector<std::string> command, const Environment& environment) {
  if (command.empty()) throw UsageError("no program to launch");
  command.front() = find_program(command.front(), environment);
  return command;
}

}  // namespace

Launcher::Launcher(const LauncherOptions& options)
    : timeouts_(options.rendezvous.timeouts),
      mpi_ports_(options.mpi_ports),
      environment_(options.environment),
      master_address_(options.cluster.tasks.empty() ? "127.0.0.1" : options.cluster.tasks.front().address.host),
      launch_id_(to_hex(random_number())),
      command_(resolve_command(options.command, options.environment)),
      signals_(receive_signals()),
      rendezvous_(with_a_task(options.cluster), options.ranks, options.rendezvous),
      progress_tracker_(options.rendezvous.timeouts.heartbeat_interval / 2),
      trainers_are_tasks_(options.trainers_are_tasks) {
  if (!options.trainers_are_tasks) environment_.erase("LOCKSTEP_JOB_TOKEN");
  oom_kills_ = read_memory_group().oom_kills;
  if (options.status_port == 0) return;
  status_ = std::make_unique<StatusServer>(listen_on(options.status_port, SOMAXCONN, "with --status-port"),
                                           [this](const std::string& path) { return answer(path); });
}

int Launcher::run() {
  while (true) {
    // An action may produce further actions.
    for (std::vector<LauncherAction> actions = rendezvous_.take_actions(); !actions.empty();
         actions = rendezvous_.take_actions()) {
      for (LauncherAction& action : actions) {
        std::visit([this](auto& it) { this->act(it); }, action);
      }
      finish_ending();
    }
    if (exit_code_) return *exit_code_;
    wait();
  }
}

void Launcher::wait() {
  std::vector<pollfd> polled;
  polled.push_back({signals_.descriptor(), POLLIN, 0});
  if (server_) polled.push_back({server_->descriptor(), server_->events(), 0});
  for (const auto& [rank, trainer] : trainers_) polled.push_back({trainer->control(), POLLIN, 0});
  rendezvous_.collect(polled);
  if (status_) status_->collect(polled);
  int timeout = rendezvous_.timeout_ms();
  const Deadline check_at = looks_for_stopped_processes() ? next_stop_check_ : Deadline::never();
  for (const Deadline& deadline : {kill_at_, leave_by_, check_at}) {
    if (const int left = deadline.poll_timeout(); left >= 0) timeout = std::min(timeout, left);
  }
  if (poll_all(polled, timeout) < 0) {
    if (errno != EINTR) throw InternalError(fmt::format("poll failed: {}", std::generic_category().message(errno)));
    for (pollfd& entry : polled) entry.revents = 0;
  }
  rendezvous_.handle(polled);
  if (status_) status_->handle(polled);
  take_pmix_events();
  take_reports();
  check_for_stopped_processes();
  take_signals();
  reap_trainers();
  finish_ending();
}

void Launcher::take_signals() {
  signalfd_siginfo info{};
  while (read(signals_.descriptor(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) continue;  // reap_trainers() checks all of them
    if (is_leaving_) stop_trainers();         // a second signal: stop at once
    const char* name = sigabbrev_np(static_cast<int>(info.ssi_signo));
    if (trainers_.empty() && !is_leaving_)
      log_info("leaving; nothing trains here now, and the same command comes back");
    rendezvous_.member().leave(name == nullptr ? fmt::format("it received signal {}", info.ssi_signo)
                                               : fmt::format("it received SIG{}", name));
  }
}

void Launcher::take_pmix_events() {
  if (!server_) return;
  Member& member = rendezvous_.member();
  for (PmixEvent& event : server_->handle()) {
    if (auto* ready = std::get_if<PmixReady>(&event)) {
      for (std::size_t i = 0; i < served_ranks_.size(); ++i) {
        member.environment(served_ranks_[i], std::move(ready->environments.at(i)));
      }
    } else if (auto* fence = std::get_if<PmixFence>(&event)) {
      fences_[member.fence(std::move(fence->blob))] = fence->sequence;
    } else if (const auto* lost = std::get_if<PmixLost>(&event)) {
      member.failed(lost->why);
    }  // PmixAbort: the rank that called MPI_Abort exits by itself with that code
  }
}

void Launcher::take_reports() {
  const double now = monotonic_seconds();
  for (const auto& [rank, trainer] : trainers_) {
    const std::optional<Progress> report = trainer->take_report();
    if (!report) continue;
    has_trained_ |= report->step > 0 || report->activity == Activity::training;
    progress_tracker_.update(rank, *report, now);
  }
  for (const Progress& report : progress_tracker_.take_due_reports(now)) rendezvous_.member().progress(report);
}

StatusReply Launcher::answer(const std::string& path) const {
  if (path == "/report") return live_report();
  if (path != "/healthz" && path != "/metrics")
    return {404, "text/plain; charset=utf-8", "not found; see /healthz, /metrics and /report\n"};
  JobStatus status = rendezvous_.status();
  status.latest_progress = progress_tracker_.latest_progress();
  for (const Progress& rank : progress_tracker_.reports(monotonic_seconds()))
    status.ranks.push_back({status.worker, rank});
  if (path == "/metrics") {
    return {200, "text/plain; version=0.0.4; charset=utf-8", format_metrics(status, read_process_status())};
  }
  return {status.problem.empty() ? 200 : 503, "text/plain; charset=utf-8", format_health(status)};
}

StatusReply Launcher::live_report() const {
  constexpr std::string_view type = "text/html; charset=utf-8";
  std::ifstream file(live_report_);
  std::string page(std::istreambuf_iterator<char>(file), {});
  if (!page.empty()) return {200, std::string(type), std::move(page)};
  return {404, std::string(type),
          "<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"2\"><title>no report yet</title><p>No report yet. The "
          "chief's launcher has one from the end of the first epoch, if the program trains in the native engine.\n"};
}

void Launcher::act(const StartPmixServer& action) {
  Member& member = rendezvous_.member();
  const Placement& placement = member.placement();
  try {
    directories_ = std::make_unique<SessionDirectories>();
    served_ranks_ = placement.ranks_of_node(action.node);
    PmixJob job{};
    job.nspace = placement.nspace;
    for (const RankPlacement& rank : placement.ranks) job.node_of_rank.push_back(static_cast<int>(rank.node));
    for (const std::uint64_t rank : served_ranks_) job.served.push_back(static_cast<int>(rank));
    job.session_directory = directories_->files();
    job.memory_directory = directories_->memory();
    job.ranks_on_machine = placement.nodes.at(action.node).ranks_on_machine;
    job.tcp_address = rendezvous_.own_address();
    if (mpi_ports_.first > 0) {
      job.first_tcp_port = mpi_ports_.first;
      job.tcp_ports = mpi_ports_.last - mpi_ports_.first + 1;
    }
    server_ = std::make_unique<PmixProcess>(own_program, job);
    next_stop_check_ = Deadline::after(timeouts_.heartbeat_interval / 2);
  } catch (const Error& error) {
    member.failed(error.what());
  }
}

void Launcher::record_generation(const Placement& placement) {
  if (!generations_.empty() && generations_.back().generation == placement.generation) return;
  generations_.push_back({placement.generation, placement.ranks.size(), wall_clock_seconds(), 0, ""});
}

/// Only rank 0 prints the progress, so without this line the launchers of other ranks would print nothing.
void Launcher::tell_where_output_is(std::uint64_t started_rank) {
  const Placement& placement = rendezvous_.member().placement();
  const std::vector<std::uint64_t> ranks = placement.ranks_of_member(placement.ranks.at(started_rank).member);
  if (ranks.front() == 0 || started_rank != ranks.back()) return;
  log_info(fmt::format("rank{} {} of {} started; rank 0, on {}, prints the progress", ranks.size() == 1 ? "" : "s",
                       fmt::join(ranks, ", "), placement.ranks.size(), master_address_));
}

void Launcher::act(StartTrainer& action) {
  Member& member = rendezvous_.member();
  try {
    for (const auto& [name, value] : action.variables) {
      if (may_be_sent(name)) continue;
      throw DataError(fmt::format("the environment that was sent for rank {} sets {}, which no PMIx server sets",
                                  action.rank, name));
    }
    Environment environment = join_environments(environment_, action.variables);
    const Placement& placement = member.placement();
    for (const auto& [name, value] : world_variables(placement, action.rank, master_address_))
      environment[name] = value;
    environment.merge(thread_variables(placement, action.rank, available_cpus()));
    environment["LOCKSTEP_LAUNCH_ID"] = launch_id_;
    environment["LOCKSTEP_GENERATION"] = std::to_string(placement.generation);
    record_generation(placement);
    environment[earlier_generations_variable] =
        format_generations(std::span(generations_).first(generations_.size() - 1));
    if (status_ && action.rank == 0) {
      live_report_ = std::filesystem::path(directories_->files()) / "report.html";
      environment["LOCKSTEP_LIVE_REPORT"] = live_report_;
    }
    environment["LOCKSTEP_MEMBER_ADDRESSES"] =
        placement.nodes.size() > 1 ? fmt::format("{}", fmt::join(placement.addresses, ",")) : "";
    if (placement.ranks.size() < placement.full_world_size)
      environment.emplace("LOCKSTEP_BATCH_NORM_REPLICAS", std::to_string(placement.full_world_size));
    const auto& trainer =
        *trainers_.emplace(action.rank, std::make_unique<TrainerProcess>(command_, environment, kept_files_)).first;
    record_event({.what = "start", .generation = placement.nspace, .trainer = trainer.second->id()});
    member.started(action.rank);
    tell_where_output_is(action.rank);
    progress_tracker_.begin(action.rank);
    next_stop_check_ = Deadline::after(timeouts_.heartbeat_interval / 2);
  } catch (const Error& error) {
    member.failed(error.what());
  }
  if (is_leaving_) stop_trainers();
}

void Launcher::act(const AnswerFence& action) {
  const auto fence = fences_.find(action.sequence);
  if (!server_ || fence == fences_.end()) return;
  PmixFenceDone done{fence->second, !action.is_lost, ""};
  for (const std::string& blob : action.blobs) done.data += blob;
  server_->answer(done);
  fences_.erase(fence);
}

void Launcher::send_request_to_trainers(StopRequest request) {
  for (const auto& [rank, trainer] : trainers_) trainer->send_request(request);
}

void Launcher::act(const StopAfterThisStep& /*action*/) {
  is_leaving_ = true;
  if (!has_trained_) {  // there is nothing to save
    stop_trainers();
    return;
  }
  send_request_to_trainers(StopRequest::after_this_step);
  leave_by_ = Deadline::after(timeouts_.leave_timeout);
}

void Launcher::act(const StopAfterNextBackup& /*action*/) { send_request_to_trainers(StopRequest::after_next_backup); }

void Launcher::act(const EndGeneration& action) {
  is_ending_ = true;
  if (!generations_.empty()) {
    generations_.back().ended = wall_clock_seconds();
    generations_.back().reason = action.reason;
  }
  stop_trainers();
}

void Launcher::act(const PrintTrainerStacks& /*action*/) {
  for (const auto& [rank, trainer] : trainers_) {
    log_info(fmt::format("the process of rank {} is in state {}", rank, trainer->describe_state()));
    if (progress_tracker_.has_reported(rank)) trainer->request_stack();
  }
}

void Launcher::act(const Exit& action) {
  record_event({.what = "exit"});
  if (!action.message.empty()) action.code == 0 ? log_info(action.message) : log_error(action.message);
  exit_code_ = action.code;
}

void Launcher::act(const Log& action) { action.is_warning ? log_warning(action.text) : log_info(action.text); }

}  // namespace lockstep
