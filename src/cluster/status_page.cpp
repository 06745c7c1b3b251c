// See status_page.hpp. docs/cluster.md explains the metrics.
#include "cluster/status_page.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

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
  /// The lines of one metric must follow each other.
  Page& metric(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += "# HELP " + name_ + " " + help + "\n# TYPE " + name_ + " " + type + "\n";
    return *this;
  }

  Page& line(double value, std::initializer_list<Label> labels = {}) {
    text_ += name_;
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

const char* name_of(JobPhase phase) {
  switch (phase) {
    case JobPhase::waiting: return "waiting";
    case JobPhase::training: return "training";
    case JobPhase::ending: break;
  }
  return "ending";
}

void add_training(Page& page, const Progress& progress) {
  page.metric("lockstep_step", "gauge", "Optimizer steps of the training that are done.")
      .line(static_cast<double>(progress.step));
  page.metric("lockstep_epoch", "gauge", "Epochs of the training that are done.")
      .line(static_cast<double>(progress.epoch));
  page.metric("lockstep_loss", "gauge", "Mean loss of the epoch so far, over all workers.").line(progress.loss);
  page.metric("lockstep_images_per_second", "gauge", "Examples a second, of all workers together, of late.")
      .line(progress.images_per_second);
}

void add_peers(Page& page, const JobStatus& status) {
  page.metric("lockstep_peers_missing", "gauge", "Workers that this launcher has no connection to, but should have.")
      .line(static_cast<double>(std::count_if(status.peers.begin(), status.peers.end(),
                                              [](const PeerStatus& peer) { return !peer.is_here; })));
  if (status.peers.empty()) return;
  page.metric("lockstep_peer_up", "gauge", "1 where this launcher has a connection to the peer's.");
  for (const PeerStatus& peer : status.peers) page.line(peer.is_here ? 1 : 0, {{"peer", peer.name}});
  page.metric("lockstep_peer_last_heartbeat_seconds", "gauge", "Since the peer's launcher gave its last sign of life.");
  for (const PeerStatus& peer : status.peers) {
    if (peer.is_here) page.line(peer.silence, {{"peer", peer.name}});
  }
}

void add_ranks(Page& page, const JobStatus& status) {
  if (status.ranks.empty()) return;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    page.metric(name, type, help);
    for (const RankStatus& rank : status.ranks) {
      const std::string digits = std::to_string(rank.last.rank);
      page.line(static_cast<double>(value(rank.last)), {{"rank", digits}, {"worker", rank.worker}});
    }
  };
  add("lockstep_rank_step", "gauge", "Optimizer steps that the rank has done.",
      [](const Progress& it) { return it.step; });
  add("lockstep_rank_last_report_seconds", "gauge", "Since the rank's trainer gave its last sign of life.",
      [](const Progress& it) { return it.silence; });
  add("lockstep_allreduce_seconds_total", "counter",
      "Time that the rank's trainer has spent in summing gradients, waits included.",
      [](const Progress& it) { return it.allreduce_seconds; });
  add("lockstep_wait_seconds_total", "counter",
      "Time that the rank's trainer has spent waiting for other ranks and for MPI; a straggler waits least.",
      [](const Progress& it) { return it.wait_seconds; });
}

}  // namespace

std::string health_line(const JobStatus& status) {
  if (!status.problem.empty()) return status.problem + "\n";
  std::string line = std::string("ok: ") + name_of(status.phase);
  if (status.phase == JobPhase::waiting) return line + " for " + status.waiting_for + "\n";
  line += " in generation " + std::to_string(status.generation);
  if (status.furthest) line += ", step " + std::to_string(status.furthest->step);
  return line + "\n";
}

std::string metrics_page(const JobStatus& status) {
  Page page;
  page.metric("lockstep_info", "gauge", "Always 1; its labels tell which launcher this is.")
      .line(1, {{"version", LOCKSTEP_VERSION}, {"worker", status.worker}});
  page.metric("lockstep_healthy", "gauge", "1 where /healthz answers 200.").line(status.problem.empty() ? 1 : 0);
  page.metric("lockstep_state", "gauge", "1 for what this launcher does now.");
  for (const JobPhase phase : {JobPhase::waiting, JobPhase::training, JobPhase::ending}) {
    page.line(phase == status.phase ? 1 : 0, {{"state", name_of(phase)}});
  }
  page.metric("lockstep_generation", "gauge", "Worlds that were formed, since the chief's launcher began.")
      .line(static_cast<double>(status.generation));
  page.metric("lockstep_restarts_total", "counter", "Of these, those that took the place of another.")
      .line(static_cast<double>(std::max<std::uint64_t>(status.generation, 1) - 1));
  if (status.furthest) add_training(page, *status.furthest);
  add_peers(page, status);
  add_ranks(page, status);
  return page.take();
}

}  // namespace lockstep
