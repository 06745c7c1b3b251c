// See status_format.hpp. docs/cluster.md explains the metrics.
#include "cluster/status/status_format.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

using Label = std::pair<std::string_view, std::string_view>;

class Page {
 public:
  /// Begins a metric; its samples must follow directly.
  Page& metric(const char* name, const char* type, const std::string& help) {
    name_ = name;
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help, type);
    return *this;
  }

  /// `suffix`: of the name, in a histogram.
  Page& sample(double value, std::initializer_list<Label> labels = {}, std::string_view suffix = {}) {
    text_ += name_;
    text_ += suffix;
    char before = '{';
    for (const auto& [name, label] : labels) {
      text_ += before;
      text_ += name;
      text_ += "=\"" + escaped(label) + "\"";
      before = ',';
    }
    if (labels.size() > 0) text_ += '}';
    text_ += " " + number(value) + "\n";
    return *this;
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

const char* to_string(JobPhase phase) {
  switch (phase) {
    case JobPhase::waiting: return "waiting";
    case JobPhase::training: return "training";
    case JobPhase::ending: break;
  }
  return "ending";
}

void add_training(Page& page, const Progress& progress) {
  page.metric("lockstep_step", "gauge", "Optimizer steps completed.").sample(static_cast<double>(progress.step));
  page.metric("lockstep_epoch", "gauge", "The epoch of the last step, from 0.")
      .sample(static_cast<double>(progress.epoch));
  page.metric("lockstep_loss", "gauge", "Mean training loss of the current epoch so far, over all workers.")
      .sample(progress.loss);
  page.metric("lockstep_examples_per_second", "gauge", "Recent training throughput of all workers together.")
      .sample(progress.examples_per_second);
}

void add_backups(Page& page, const BackupStatus& backups) {
  if (backups.step > 0) {
    page.metric("lockstep_backup_step", "gauge", "Optimizer step of the newest backup.")
        .sample(static_cast<double>(backups.step));
    page.metric("lockstep_backup_timestamp_seconds", "gauge",
                "When the newest backup was written, in seconds since 1970; its age is time() minus this.")
        .sample(static_cast<double>(backups.time));
  }
  page.metric("lockstep_backups_skipped_total", "counter", "Backups due while another one was being written.")
      .sample(static_cast<double>(backups.skipped));
  page.metric("lockstep_backups_failed_total", "counter", "Backups that could not be written.")
      .sample(static_cast<double>(backups.failed));
}

/// What belongs to the whole job.
void add_job(Page& page, const JobStatus& status) {
  page.metric("lockstep_generation", "gauge",
              "Number of generations (MPI worlds) formed since the chief's launcher started.")
      .sample(static_cast<double>(status.generation));
  page.metric("lockstep_restarts_total", "counter",
              fmt::format("Generations that another one replaced, by why they ended: {}.",
                          fmt::join(enum_names<RestartCause>(), ", ")));
  for (const auto& [cause, reason] : EnumNames<RestartCause>::all) {
    const auto count = status.restarts.find(cause);
    page.sample(count == status.restarts.end() ? 0 : static_cast<double>(count->second), {{"reason", reason}});
  }
  if (!status.latest_progress) return;
  add_training(page, *status.latest_progress);
  add_backups(page, status.latest_progress->backups);
}

void add_process(Page& page, const ProcessStatus& process) {
  page.metric("process_cpu_seconds_total", "counter", "User and system CPU time of this launcher, in seconds.")
      .sample(process.cpu_seconds);
  page.metric("process_start_time_seconds", "gauge", "When this launcher started, in seconds since 1970.")
      .sample(process.start_time);
  page.metric("process_resident_memory_bytes", "gauge", "Resident memory of this launcher.")
      .sample(static_cast<double>(process.resident_bytes));
  page.metric("process_virtual_memory_bytes", "gauge", "Virtual memory of this launcher.")
      .sample(static_cast<double>(process.virtual_bytes));
  page.metric("process_open_fds", "gauge", "Open file descriptors of this launcher.")
      .sample(static_cast<double>(process.open_descriptors));
  page.metric("process_max_fds", "gauge", "Limit of open file descriptors of this launcher.")
      .sample(static_cast<double>(process.max_descriptors));
}

void add_peers(Page& page, const JobStatus& status) {
  page.metric("lockstep_peers_missing", "gauge",
              "Workers to which this launcher should have a connection but has none.")
      .sample(static_cast<double>(std::count_if(status.peers.begin(), status.peers.end(),
                                                [](const PeerStatus& peer) { return !peer.is_connected; })));
  if (status.peers.empty()) return;
  page.metric("lockstep_peer_up", "gauge",
              "Whether this launcher is connected to the launcher of the peer (1 = connected).");
  for (const PeerStatus& peer : status.peers) page.sample(peer.is_connected ? 1 : 0, {{"peer", peer.name}});
  page.metric("lockstep_peer_heartbeat_age_seconds", "gauge",
              "Seconds since the last message from the launcher of the peer.");
  for (const PeerStatus& peer : status.peers) {
    if (peer.is_connected) page.sample(peer.silent_seconds, {{"peer", peer.name}});
  }
}

/// Only where parameter servers make steps that are not those of all workers.
void add_gradients(Page& page, const JobStatus& status) {
  std::vector<const RankStatus*> ranks;
  for (const RankStatus& rank : status.ranks) {
    if (rank.last.gradients.applied() + rank.last.gradients.dropped > 0) ranks.push_back(&rank);
  }
  if (ranks.empty()) return;
  page.metric("lockstep_rank_gradient_staleness", "histogram",
              "Gradients that parameter servers applied, by the updates that they had missed.");
  for (const RankStatus* rank : ranks) {
    const GradientCounts& gradients = rank->last.gradients;
    const std::string digits = std::to_string(rank->last.rank);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < gradients.by_staleness.size(); ++i) {
      const bool is_last = i == GradientCounts::bounds.size();
      const std::string bound = is_last ? "+Inf" : std::to_string(GradientCounts::bounds[i]);
      sum += gradients.by_staleness[i];
      page.sample(static_cast<double>(sum), {{"rank", digits}, {"worker", rank->worker}, {"le", bound}}, "_bucket");
    }
    page.sample(static_cast<double>(gradients.total_staleness), {{"rank", digits}, {"worker", rank->worker}}, "_sum");
    page.sample(static_cast<double>(sum), {{"rank", digits}, {"worker", rank->worker}}, "_count");
  }
  page.metric("lockstep_rank_gradients_dropped_total", "counter", "Gradients that came too late for their step.");
  for (const RankStatus* rank : ranks) {
    const std::string digits = std::to_string(rank->last.rank);
    page.sample(static_cast<double>(rank->last.gradients.dropped), {{"rank", digits}, {"worker", rank->worker}});
  }
}

void add_ranks(Page& page, const JobStatus& status) {
  if (status.ranks.empty()) return;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    page.metric(name, type, help);
    for (const RankStatus& rank : status.ranks) {
      const std::string digits = std::to_string(rank.last.rank);
      page.sample(static_cast<double>(value(rank.last)), {{"rank", digits}, {"worker", rank.worker}});
    }
  };
  add("lockstep_rank_step", "gauge", "Optimizer steps completed, as last reported by the rank.",
      [](const Progress& it) { return it.step; });
  add("lockstep_rank_report_age_seconds", "gauge", "Seconds since the last report of the trainer.",
      [](const Progress& it) { return it.silent_seconds; });
  add("lockstep_rank_communication_seconds_total", "counter",
      "Seconds spent in collectives between ranks, including waits.",
      [](const Progress& it) { return it.allreduce_seconds; });
  add("lockstep_rank_wait_seconds_total", "counter",
      "Seconds spent waiting for other ranks and for MPI; a straggler waits least.",
      [](const Progress& it) { return it.wait_seconds; });
}

}  // namespace

std::string format_health(const JobStatus& status) {
  if (!status.problem.empty()) return status.problem + "\n";
  if (status.phase == JobPhase::waiting) return fmt::format("ok: waiting for {}\n", status.waiting_for);
  return fmt::format("ok: {} in generation {}{}\n", to_string(status.phase), status.generation,
                     status.latest_progress ? fmt::format(", step {}", status.latest_progress->step) : "");
}

std::string format_metrics(const JobStatus& status, const ProcessStatus& process) {
  Page page;
  page.metric("lockstep_info", "gauge", "Version and task of this launcher; the value is always 1.")
      .sample(1, {{"version", LOCKSTEP_VERSION}, {"worker", status.worker}});
  page.metric("lockstep_healthy", "gauge", "Whether the job is healthy, as /healthz reports it (1 = healthy).")
      .sample(status.problem.empty() ? 1 : 0);
  page.metric("lockstep_state", "gauge", "Current state of this launcher (1 for the current state, 0 for the others).");
  for (const JobPhase phase : {JobPhase::waiting, JobPhase::training, JobPhase::ending}) {
    page.sample(phase == status.phase ? 1 : 0, {{"state", to_string(phase)}});
  }
  if (status.is_chief) add_job(page, status);
  add_peers(page, status);
  add_ranks(page, status);
  add_gradients(page, status);
  add_process(page, process);
  return page.take();
}

}  // namespace lockstep
