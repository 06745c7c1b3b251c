// See fake_launchers.hpp.
#include "fake_launchers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <variant>

#include "cluster/pmix/trainer_environment.hpp"
#include "core/clock.hpp"
#include "namespaces.hpp"

using namespace lockstep;

struct FakeLaunchers::Host {
  FakeHost description;
  SessionDirectories directories;
  PmixJob job{};
  double started = 0;
  std::unique_ptr<PmixProcess> server;
};

FakeLaunchers::FakeLaunchers(FakeGeneration generation) : generation_(std::move(generation)) {
  static int count = 0;
  std::map<int, int> nodes;
  for (const FakeHost& host : generation_.hosts) {
    for (const int rank : host.ranks) nodes[rank] = host.node;
  }
  PmixJob job{};
  job.nspace = "lockstep-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  for (const auto& [rank, node] : nodes) job.node_of_rank.push_back(node);
  generation_ranks_ = nodes.size();
  for (const FakeHost& description : generation_.hosts) {
    auto host = std::make_unique<Host>();
    host->description = description;
    host->job = job;
    host->job.served = description.ranks;
    host->job.session_directory = host->directories.files();
    host->job.memory_directory = host->directories.memory();
    host->job.tcp_address = description.address;
    host->job.ranks_on_machine = generation_ranks_;
    const InNamespace there(description.network_namespace);
    host->started = monotonic_seconds();
    host->server = std::make_unique<PmixProcess>("/proc/self/exe", host->job);
    hosts_.push_back(std::move(host));
  }
}

FakeLaunchers::~FakeLaunchers() {
  end();
  for (const auto& [rank, state] : ranks_) std::filesystem::remove(state.output);
}

void FakeLaunchers::end() {
  for (auto& [rank, state] : ranks_) {
    if (state.status) continue;
    ::kill(state.pid, SIGKILL);
    int status = 0;
    waitpid(state.pid, &status, 0);
    state.status = status;
  }
  for (const auto& host : hosts_) host->server->end();
}

bool FakeLaunchers::run_until(const std::function<bool()>& condition, double limit) {
  const double deadline = monotonic_seconds() + limit;
  while (!condition()) {
    if (monotonic_seconds() > deadline) return false;
    std::vector<pollfd> entries;
    for (const auto& host : hosts_) entries.push_back({host->server->descriptor(), host->server->events(), 0});
    poll(entries.data(), entries.size(), 5);
    for (const auto& host : hosts_) {
      for (const PmixEvent& event : host->server->handle()) handle(*host, event);
    }
    reap();
  }
  return true;
}

void FakeLaunchers::handle(Host& host, const PmixEvent& event) {
  if (const auto* ready = std::get_if<PmixReady>(&event)) {
    ready_after.push_back(monotonic_seconds() - host.started);
    start_ranks(host, *ready);
  } else if (const auto* fence = std::get_if<PmixFence>(&event)) {
    auto& parts = open_fences_[fence->sequence];
    parts[&host] = fence->blob;
    if (parts.size() < hosts_.size()) return;
    PmixFenceDone done{fence->sequence, !break_fences, ""};
    for (const auto& each : hosts_) done.data += parts[each.get()];
    for (const auto& each : hosts_) each->server->answer(done);
    open_fences_.erase(fence->sequence);
    ++fences;
  } else if (const auto* abort = std::get_if<PmixAbort>(&event)) {
    aborts.push_back(*abort);
  } else {
    lost.push_back(std::get<PmixLost>(event).why);
  }
}

void FakeLaunchers::start_ranks(const Host& host, const PmixReady& ready) {
  const InNamespace there(host.description.network_namespace);
  for (std::size_t i = 0; i < host.job.served.size(); ++i) {
    Environment environment = join_environments(current_environment(), ready.environments[i]);
    for (const auto& [name, value] : generation_.environment) environment[name] = value;
    std::vector<std::string> texts;
    for (const auto& [name, value] : environment) texts.push_back(name + "=" + value);
    std::vector<char*> variables;
    for (std::string& text : texts) variables.push_back(text.data());
    variables.push_back(nullptr);
    std::vector<char*> arguments;
    for (std::string& argument : generation_.command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);

    Rank rank;
    rank.output = (std::filesystem::temp_directory_path() / ("launch_test_XXXXXX")).string();
    const int output = mkstemp(rank.output.data());
    posix_spawn_file_actions_t files{};
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
    posix_spawn_file_actions_addclose(&files, output);
    const int error = posix_spawn(&rank.pid, arguments[0], &files, nullptr, arguments.data(), variables.data());
    posix_spawn_file_actions_destroy(&files);
    close(output);
    if (error != 0) throw std::runtime_error("cannot start " + generation_.command[0]);
    ranks_[host.job.served[i]] = rank;
  }
}

void FakeLaunchers::reap() {
  for (auto& [number, rank] : ranks_) {
    int status = 0;
    if (!rank.status && waitpid(rank.pid, &status, WNOHANG) == rank.pid) rank.status = status;
  }
}

void FakeLaunchers::kill(int rank, int signal) { ::kill(ranks_.at(rank).pid, signal); }

void FakeLaunchers::kill_server(std::size_t host) { ::kill(hosts_.at(host)->server->pid(), SIGKILL); }

bool FakeLaunchers::all_ended() const {
  return all_started() && std::ranges::all_of(ranks_, [](const auto& rank) { return rank.second.status.has_value(); });
}

std::optional<int> FakeLaunchers::status(int rank) const { return ranks_.at(rank).status; }

std::string FakeLaunchers::output(int rank) const {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return {};
  std::ostringstream text;
  text << std::ifstream(found->second.output).rdbuf();
  return text.str();
}

bool FakeLaunchers::all_said(const std::string& text) const {
  return all_started() && std::ranges::all_of(ranks_, [&](const auto& rank) {
           return output(rank.first).find(text) != std::string::npos;
         });
}

std::vector<std::string> FakeLaunchers::directories() const {
  std::vector<std::string> all;
  for (const auto& host : hosts_) {
    all.push_back(host->directories.files());
    all.push_back(host->directories.memory());
  }
  return all;
}
