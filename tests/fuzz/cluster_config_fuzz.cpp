// Fuzzes CLUSTER_CONFIG with POD_NAME, and the options --job_name, --worker_hosts, ...: the text's lines are one or the
// other. Any text must yield a consistent cluster or a UsageError of one line.
#include "cluster/config/cluster_config.hpp"
#include "cluster/config/task_options.hpp"
#include "cluster/config/tf_config.hpp"

#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  return lockstep::testing::mutate_from(
      {"n-worker-1-x7k2p\n"
       R"({"chief": ["n-launcher.n:1"], "worker": {"address": "n-worker-{}.n:5000", "count": 3},})",
       "\n"
       R"({"ps": {"address": "p-{}:1", "count": 2, "gpus": 1}, "worker": ["a:1", "b:1"], "isGpu": true})",
       "--job_name=worker\n--task_index=1\n--ps_hosts=p:1\n--worker_hosts=a:1,b:1\n--master_hosts\nm:1\n--epochs=3"},
      data, size, max_size, lot);
}

namespace {

void check(const lockstep::ClusterSpec& spec) {
  if (spec.rank.has_value() == spec.tasks.empty()) std::abort();
  if (spec.rank.value_or(0) >= spec.workers()) std::abort();
  if (lockstep::parse_tf_config(lockstep::to_tf_config(spec)).tasks != spec.tasks) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  try {
    if (text.starts_with("--")) {
      std::istringstream lines(text);
      std::vector<std::string> args;
      for (std::string line; std::getline(lines, line);) args.push_back(line);
      lockstep::Environment environment;
      (void)lockstep::take_task_options(args, environment);
      check(lockstep::read_cluster_spec(environment));
    } else {
      const std::size_t end = text.find('\n');
      check(lockstep::read_cluster_config({{"POD_NAME", text.substr(0, end)},
                                           {"JOB_COMPLETION_INDEX", "1"},
                                           {"CLUSTER_CONFIG", end < size ? text.substr(end + 1) : std::string()}}));
    }
  } catch (const lockstep::UsageError& error) {
    // expected for most inputs
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
