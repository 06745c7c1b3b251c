// See launcher.hpp.
#include "cluster/launcher.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/job_status.hpp"
#include "cluster/seconds_text.hpp"
#include "cluster/status_page.hpp"
#include "cluster/trainer_environment.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr double grace_s = 3;  // between SIGTERM and SIGKILL
constexpr const char* own_program = "/proc/self/exe";

/// Who has no peers is a cluster of one, on whatever port.
ClusterSpec with_a_task(const ClusterSpec& cluster) {
  if (!cluster.tasks.empty()) return cluster;
  ClusterSpec alone;
  alone.tasks.push_back({TaskType::worker, 0, {"127.0.0.1", 0}});
  alone.rank = 0;
  return alone;
}

/// As nohup and scripts with & ask for.
bool is_ignored(int number) {
  struct sigaction now {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

Socket receive_signals() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  (void)std::signal(SIGCHLD, SIG_DFL);  // who ignores it cannot learn how a child has ended
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) {
    if (!is_ignored(number)) sigaddset(&handled, number);
  }
  Socket signals(sigprocmask(SIG_BLOCK, &handled, nullptr) == 0 ? signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC)
                                                                : -1);
  if (!signals) throw InternalError("signalfd failed: " + std::generic_category().message(errno));
  return signals;
}

std::vector<std::string> resolve_command(std::vector<std::string> command, const Environment& environment) {
  if (command.empty()) throw UsageError("there is no program to launch");
  command.front() = find_program(command.front(), environment);
  return command;
}

}  // namespace

Launcher::Launcher(const LauncherOptions& options)
    : limits_(options.rendezvous.limits),
      mpi_ports_(options.mpi_ports),
      environment_(options.environment),
      command_(resolve_command(options.command, options.environment)),
      signals_(receive_signals()),
      rendezvous_(with_a_task(options.cluster), options.ranks, options.rendezvous),
      watch_(options.rendezvous.limits.heartbeat / 2) {
  environment_.erase("LOCKSTEP_JOB_TOKEN");
  if (options.status_port == 0) return;
  status_ = std::make_unique<StatusServer>(listen_on(options.status_port, SOMAXCONN, "with --status-port"),
                                           [this](const std::string& path) { return answer(path); });
}

int Launcher::run() {
  while (true) {
    // An action may lead to the next one.
    for (std::vector<LauncherAction> actions = rendezvous_.take_actions(); !actions.empty();
         actions = rendezvous_.take_actions()) {
      for (LauncherAction& action : actions) {
        std::visit([this](auto& it) { this->act(it); }, action);
      }
      end_what_ends();
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
  for (const Deadline& deadline : {kill_at_, leave_by_}) {
    if (const int left = deadline.poll_timeout(); left >= 0) timeout = std::min(timeout, left);
  }
  if (poll(polled.data(), polled.size(), timeout) < 0) {
    if (errno != EINTR) throw InternalError("poll failed: " + std::generic_category().message(errno));
    for (pollfd& entry : polled) entry.revents = 0;
  }
  rendezvous_.handle(polled);
  if (status_) status_->handle(polled);
  take_pmix_events();
  take_reports();
  look_for_stopped();
  take_signals();
  take_ends();
  end_what_ends();
}

void Launcher::take_signals() {
  signalfd_siginfo info{};
  while (read(signals_.descriptor(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) continue;  // whoever it was: all are looked at
    if (is_leaving_) stop_trainers();         // told twice: at once
    const char* name = sigabbrev_np(static_cast<int>(info.ssi_signo));
    rendezvous_.member().leave(std::string("it was sent SIG") + (name == nullptr ? "NAL" : name));
  }
}

void Launcher::take_pmix_events() {
  if (!server_) return;
  Member& member = rendezvous_.member();
  for (PmixEvent& event : server_->handle()) {
    if (auto* ready = std::get_if<PmixReady>(&event)) {
      for (std::size_t i = 0; i < served_.size(); ++i) {
        member.environment(served_[i], std::move(ready->environments.at(i)));
      }
    } else if (auto* fence = std::get_if<PmixFence>(&event)) {
      fences_[member.fence(std::move(fence->blob))] = fence->number;
    } else if (const auto* lost = std::get_if<PmixLost>(&event)) {
      member.failed(lost->why);
    }  // who called MPI_Abort ends by itself, with that code
  }
}

void Launcher::take_reports() {
  const double now = monotonic_seconds();
  for (const auto& [rank, trainer] : trainers_) {
    const std::optional<Progress> report = trainer->take_report();
    if (!report) continue;
    has_stepped_ |= report->step > 0;
    watch_.hear(rank, *report, now);
  }
  for (const Progress& report : watch_.take_due(now)) rendezvous_.member().progress(report);
}

/// Who is stopped while it is busy is not missed by others for a long time.
void Launcher::look_for_stopped() {
  if (is_ending_ || limits_.stuck == 0 || !next_look_.passed()) return;
  next_look_ = Deadline::after(limits_.heartbeat / 2);
  for (const auto& [rank, trainer] : trainers_) {
    if (!trainer->is_stopped()) {
      stopped_.erase(rank);
    } else if (stopped_.try_emplace(rank, Deadline::after(limits_.stuck)).first->second.passed()) {
      rendezvous_.member().failed("the trainer of rank " + std::to_string(rank) +
                                  " was stopped (SIGSTOP), and has not gone on within " + seconds_text(limits_.stuck));
      return;
    }
  }
}

StatusReply Launcher::answer(const std::string& path) const {
  if (path != "/healthz" && path != "/metrics")
    return {404, "text/plain; charset=utf-8", "ask for /healthz or /metrics\n"};
  JobStatus status = rendezvous_.status();
  status.furthest = watch_.furthest();
  if (status.ranks.empty()) {
    for (const Progress& rank : watch_.ranks(monotonic_seconds())) status.ranks.push_back({status.worker, rank});
  }
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", metrics_page(status)};
  return {status.problem.empty() ? 200 : 503, "text/plain; charset=utf-8", health_line(status)};
}

void Launcher::take_ends() {
  for (auto entry = trainers_.begin(); entry != trainers_.end();) {
    const std::optional<ChildEnd> end = entry->second->reap();
    if (end) {
      rendezvous_.member().child_ended(entry->first, end->code, end->signal, watch_.has_told(entry->first));
      watch_.end(entry->first);
    }
    entry = end ? trainers_.erase(entry) : std::next(entry);
  }
}

void Launcher::end_what_ends() {
  if (leave_by_.passed()) {
    log_warning("trainers have not saved and left within " + seconds_text(limits_.leave) +
                "; they are ended, and what was done since the last backup will be done again");
    stop_trainers();
  }
  if (kill_at_.passed()) {
    for (const auto& [rank, trainer] : trainers_) trainer->signal(SIGKILL);
    kill_at_ = Deadline::never();
  }
  if (!is_ending_ || !trainers_.empty()) return;
  server_.reset();
  directories_.reset();
  served_.clear();
  fences_.clear();
  kill_at_ = Deadline::never();
  leave_by_ = Deadline::never();
  is_ending_ = false;
  has_stepped_ = false;
  stopped_.clear();
  rendezvous_.member().all_ended();
}

void Launcher::stop_trainers() {
  leave_by_ = Deadline::never();
  for (const auto& [rank, trainer] : trainers_) {
    trainer->signal(SIGTERM);
    trainer->signal(SIGCONT);  // one that is stopped does not hear the other
  }
  kill_at_ = Deadline::after(grace_s);
}

void Launcher::act(const StartServer& action) {
  Member& member = rendezvous_.member();
  const WorldMap& map = member.map();
  try {
    directories_ = std::make_unique<SessionDirectories>();
    served_ = map.ranks_of_node(action.node);
    PmixJob job{};
    job.nspace = map.nspace;
    for (const RankPlace& place : map.ranks) job.node_of_rank.push_back(static_cast<int>(place.node));
    for (const std::uint64_t rank : served_) job.served.push_back(static_cast<int>(rank));
    job.session_directory = directories_->files();
    job.memory_directory = directories_->memory();
    job.ranks_on_machine = map.nodes.at(action.node).ranks_on_machine;
    job.tcp_address = rendezvous_.own_address();
    if (mpi_ports_.first > 0) {
      job.first_tcp_port = mpi_ports_.first;
      job.tcp_ports = mpi_ports_.last - mpi_ports_.first + 1;
    }
    server_ = std::make_unique<PmixProcess>(own_program, job);
  } catch (const Error& error) {
    member.failed(error.what());
  }
}

void Launcher::act(StartTrainer& action) {
  Member& member = rendezvous_.member();
  try {
    Environment environment = join_environments(environment_, action.variables);
    const WorldMap& map = member.map();
    if (map.ranks.size() < map.replicas) environment.emplace("LOCKSTEP_REPLICAS", std::to_string(map.replicas));
    trainers_.emplace(action.rank, std::make_unique<Child>(command_, environment));
    member.started(action.rank);
    watch_.begin(action.rank);
    next_look_ = Deadline::after(limits_.heartbeat / 2);
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

void Launcher::ask_trainers(Request request) {
  for (const auto& [rank, trainer] : trainers_) trainer->ask(request);
}

void Launcher::act(const SaveAndLeave& /*action*/) {
  is_leaving_ = true;
  if (!has_stepped_) {  // nothing would be lost
    stop_trainers();
    return;
  }
  ask_trainers(Request::leave);
  leave_by_ = Deadline::after(limits_.leave);
}

void Launcher::act(const LeaveWithBackup& /*action*/) { ask_trainers(Request::leave_with_backup); }

void Launcher::act(const EndGeneration& /*action*/) {
  is_ending_ = true;
  stop_trainers();
}

void Launcher::act(const Exit& action) {
  if (!action.message.empty()) action.code == 0 ? log_info(action.message) : log_error(action.message);
  exit_code_ = action.code;
}

void Launcher::act(const Log& action) { action.is_warning ? log_warning(action.text) : log_info(action.text); }

}  // namespace lockstep
