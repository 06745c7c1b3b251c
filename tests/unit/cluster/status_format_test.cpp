// The pages for probes and Prometheus. The test parses the metrics by the rules of text format 0.0.4.
#include "cluster/status/status_format.hpp"

#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <ctime>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

using namespace lockstep;

namespace {

/// Returns values by name and labels. Fails on violations of the format.
std::map<std::string, double> parse(const std::string& page) {
  static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) [^\n]+");
  static const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)");
  static const std::regex sample(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\["\\n])*"(,[a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\["\\n])*")*\})? (\S+))re");
  REQUIRE(page.ends_with('\n'));
  std::map<std::string, double> values;
  std::set<std::string> ended;
  std::string current;
  std::string kind;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      ended.insert(current);
      current = match[1];
      kind.clear();
      REQUIRE(ended.count(current) == 0);
    } else if (std::regex_match(line, match, type)) {
      REQUIRE(match[1] == current);
      REQUIRE(kind.empty());
      kind = match[2];
    } else {
      REQUIRE(std::regex_match(line, match, sample));
      const std::string name = match[1];
      const bool is_of_histogram =
          name == current + "_bucket" || name == current + "_sum" || name == current + "_count";
      REQUIRE((kind == "histogram" ? is_of_histogram : name == current));
      REQUIRE_FALSE(kind.empty());
      REQUIRE((kind == "counter") == current.ends_with("_total"));
      const std::string value = match[6];
      std::size_t used = 0;
      const double number = value == "+Inf" || value == "-Inf" ? std::stod(value) : std::stod(value, &used);
      REQUIRE((used == value.size() || used == 0));
      REQUIRE(values.emplace(match[1].str() + match[2].str(), number).second);
    }
  }
  return values;
}

JobStatus training() {
  JobStatus status;
  status.worker = "worker 0";
  status.is_chief = true;
  status.phase = JobPhase::training;
  status.generation = 3;
  status.restarts = {{RestartCause::killed, 2}};
  status.peers = {{"worker 1", true, 0.25}, {"worker 2", false, 77}};
  Progress progress{3, 0, Activity::training, 340, 2, 0.125, 16980.5};
  progress.allreduce_seconds = 4;
  progress.wait_seconds = 3.5;
  progress.silent_seconds = 0.125;
  progress.backups = {.step = 330, .time = 1'800'000'000, .skipped = 4, .failed = 1};
  status.latest_progress = progress;
  status.ranks.push_back({"worker 0", progress});
  progress.rank = 1;
  progress.wait_seconds = 0.5;
  status.ranks.push_back({"worker 1", progress});
  return status;
}

}  // namespace

TEST_CASE("the metrics of a training job are complete and well-formed") {
  const std::map<std::string, double> values = parse(format_metrics(training(), {}));
  CHECK(values.at("lockstep_info{version=\"" LOCKSTEP_VERSION "\",worker=\"worker 0\"}") == 1);
  CHECK(values.at("lockstep_healthy") == 1);
  CHECK(values.at("lockstep_state{state=\"training\"}") == 1);
  CHECK(values.at("lockstep_state{state=\"waiting\"}") == 0);
  CHECK(values.at("lockstep_state{state=\"ending\"}") == 0);
  CHECK(values.at("lockstep_generation") == 3);
  CHECK(values.at("lockstep_restarts_total{reason=\"killed\"}") == 2);
  CHECK(values.at("lockstep_restarts_total{reason=\"left\"}") == 0);
  CHECK(values.at("lockstep_backup_step") == 330);
  CHECK(values.at("lockstep_backup_timestamp_seconds") == 1.8e9);
  CHECK(values.at("lockstep_backups_skipped_total") == 4);
  CHECK(values.at("lockstep_backups_failed_total") == 1);
  CHECK(values.at("lockstep_step") == 340);
  CHECK(values.at("lockstep_epoch") == 2);
  CHECK(values.at("lockstep_loss") == 0.125);
  CHECK(values.at("lockstep_examples_per_second") == 16980.5);
  CHECK(values.at("lockstep_peers_missing") == 1);
  CHECK(values.at("lockstep_peer_up{peer=\"worker 1\"}") == 1);
  CHECK(values.at("lockstep_peer_up{peer=\"worker 2\"}") == 0);
  CHECK(values.at("lockstep_peer_heartbeat_age_seconds{peer=\"worker 1\"}") == 0.25);
  CHECK(values.count("lockstep_peer_heartbeat_age_seconds{peer=\"worker 2\"}") == 0);
  CHECK(values.at("lockstep_rank_step{rank=\"1\",worker=\"worker 1\"}") == 340);
  CHECK(values.at("lockstep_rank_report_age_seconds{rank=\"1\",worker=\"worker 1\"}") == 0.125);
  CHECK(values.at("lockstep_rank_communication_seconds_total{rank=\"0\",worker=\"worker 0\"}") == 4);
  CHECK(values.at("lockstep_rank_wait_seconds_total{rank=\"0\",worker=\"worker 0\"}") == 3.5);
  CHECK(values.at("lockstep_rank_wait_seconds_total{rank=\"1\",worker=\"worker 1\"}") == 0.5);
}

TEST_CASE("the gradients of a worker of parameter servers are a histogram of their staleness") {
  JobStatus status = training();
  CHECK(format_metrics(status, {}).find("staleness") == std::string::npos);  // every step is one of all workers
  GradientCounts& gradients = status.ranks[1].last.gradients;
  for (const std::uint64_t staleness : {0, 3, 4, 100}) gradients.add_applied(staleness);
  gradients.dropped = 5;
  const std::map<std::string, double> values = parse(format_metrics(status, {}));
  const std::string bucket = "lockstep_rank_gradient_staleness_bucket{rank=\"1\",worker=\"worker 1\",le=";
  CHECK(values.at(bucket + "\"0\"}") == 1);
  CHECK(values.at(bucket + "\"2\"}") == 1);
  CHECK(values.at(bucket + "\"4\"}") == 3);
  CHECK(values.at(bucket + "\"32\"}") == 3);
  CHECK(values.at(bucket + "\"+Inf\"}") == 4);
  CHECK(values.at("lockstep_rank_gradient_staleness_sum{rank=\"1\",worker=\"worker 1\"}") == 107);
  CHECK(values.at("lockstep_rank_gradient_staleness_count{rank=\"1\",worker=\"worker 1\"}") == 4);
  CHECK(values.at("lockstep_rank_gradients_dropped_total{rank=\"1\",worker=\"worker 1\"}") == 5);
  CHECK(values.count("lockstep_rank_gradients_dropped_total{rank=\"0\",worker=\"worker 0\"}") == 0);
}

TEST_CASE("metrics are well-formed for any state") {
  CHECK(parse(format_metrics({}, {})).at("lockstep_peers_missing") == 0);
  JobStatus status = training();
  status.worker = "worker \"0\"\\\n";
  status.problem = "a worker is gone";
  status.latest_progress->loss = std::numeric_limits<double>::quiet_NaN();
  status.latest_progress->examples_per_second = std::numeric_limits<double>::infinity();
  const std::map<std::string, double> values = parse(format_metrics(status, {}));
  CHECK(values.at("lockstep_healthy") == 0);
  CHECK(std::isnan(values.at("lockstep_loss")));
  CHECK(std::isinf(values.at("lockstep_examples_per_second")));
}

TEST_CASE("what belongs to the job comes from the chief only, so that sums over launchers are right") {
  JobStatus status = training();
  const std::map<std::string, double> of_chief = parse(format_metrics(status, {}));
  status.is_chief = false;
  const std::map<std::string, double> of_worker = parse(format_metrics(status, {}));
  for (const char* name :
       {"lockstep_generation", "lockstep_step", "lockstep_epoch", "lockstep_loss", "lockstep_examples_per_second",
        "lockstep_backup_step", "lockstep_backups_failed_total", "lockstep_restarts_total{reason=\"killed\"}"}) {
    CAPTURE(name);
    CHECK(of_chief.count(name) == 1);
    CHECK(of_worker.count(name) == 0);
  }
  CHECK(of_worker.count("lockstep_rank_step{rank=\"1\",worker=\"worker 1\"}") == 1);
}

TEST_CASE("a launcher exports its process under the usual names") {
  const ProcessStatus own = read_process_status();
  CHECK(own.cpu_seconds > 0);
  CHECK(own.resident_bytes > 1'000'000);
  CHECK(own.virtual_bytes >= own.resident_bytes);
  CHECK(own.open_descriptors >= 3);
  CHECK(own.max_descriptors > own.open_descriptors);
  const auto now = static_cast<double>(std::time(nullptr));
  CHECK(own.start_time <= now + 1);
  CHECK(own.start_time > now - 3600);
  const std::map<std::string, double> values = parse(format_metrics({}, own));
  CHECK(values.at("process_resident_memory_bytes") == static_cast<double>(own.resident_bytes));
  CHECK(values.at("process_cpu_seconds_total") == own.cpu_seconds);
  CHECK(values.at("process_start_time_seconds") == own.start_time);
  CHECK(values.at("process_open_fds") == static_cast<double>(own.open_descriptors));
}

TEST_CASE("the health line reports the state of the job") {
  JobStatus status = training();
  CHECK(format_health(status) == "ok: training in generation 3, step 340\n");
  status.latest_progress.reset();
  status.phase = JobPhase::ending;
  CHECK(format_health(status) == "ok: ending in generation 3\n");
  status.phase = JobPhase::waiting;
  status.waiting_for = "worker 2 (its name does not resolve)";
  CHECK(format_health(status) == "ok: waiting for worker 2 (its name does not resolve)\n");
  status.problem = "leaving: it was told to stop";
  CHECK(format_health(status) == "leaving: it was told to stop\n");
}
