// CLUSTER_CONFIG with POD_NAME, and the options of TensorFlow 1's programs, describe a cluster as TF_CONFIG does.
#include "cluster/config/cluster_config.hpp"
#include "cluster/config/task_options.hpp"
#include "cluster/config/tf_config.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// "worker 0 a:5000, worker 1 b:5001; rank 1".
std::string summary_of(const ClusterSpec& spec) {
  std::string text;
  for (const Task& task : spec.tasks) text += task.name() + " " + task.address.to_string() + ", ";
  return text + "rank " + (spec.rank ? std::to_string(*spec.rank) : "none");
}

std::string message_of(const std::function<ClusterSpec()>& read) {
  try {
    return "accepted: " + summary_of(read());
  } catch (const UsageError& error) {
    return error.what();
  }
}

ClusterSpec in_pod(const std::string& config, const std::string& pod) {
  return read_cluster_spec({{"CLUSTER_CONFIG", config}, {"POD_NAME", pod}});
}

ClusterSpec with_options(std::vector<std::string> args) {
  Environment environment;
  (void)take_task_options(args, environment);
  return read_cluster_spec(environment);
}

const std::string range = R"({"worker": {"address": "j-worker-{}.j:5000", "count": 12}})";

}  // namespace

TEST_CASE("a pod finds its task by its name") {
  const std::string lists = R"({"chief": ["j-launcher.j:1"], "worker": ["j-worker-0.j:1", "j-worker-1.j:1",],})";
  CHECK(summary_of(in_pod(lists, "j-worker-1")) ==
        "chief 0 j-launcher.j:1, worker 0 j-worker-0.j:1, worker 1 j-worker-1.j:1, rank 2");
  CHECK(in_pod(lists, "j-launcher-x7k2p").rank == 0U);
  CHECK(in_pod(lists, "j-worker-0-0-x7k2p").rank == 1U);
  CHECK(in_pod(lists, "j-worker-0").warnings.size() == 1);  // the commas

  const ClusterSpec spec = in_pod(range, "j-worker-11-abcde");
  CHECK(spec.workers() == 12);
  CHECK(spec.rank == 11U);
  CHECK(spec.tasks[11].address.to_string() == "j-worker-11.j:5000");
  CHECK(in_pod(range, "j-worker-1-abcde").rank == 1U);
  // The longest name decides.
  CHECK(in_pod(R"({"worker": ["j:1", "j-1:1", "j-1-1:1"]})", "j-1-1-abc").rank == 2U);
  CHECK(in_pod(R"({"worker": ["j:1", "j-1:1", "j-1-1:1"]})", "j-1-abc").rank == 1U);
}

TEST_CASE("the index of an Indexed Job is a worker's") {
  CHECK(read_cluster_spec({{"CLUSTER_CONFIG", range}, {"JOB_COMPLETION_INDEX", "3"}}).rank == 3U);
  const std::string message = message_of([] {
    return read_cluster_spec({{"CLUSTER_CONFIG", range}, {"JOB_COMPLETION_INDEX", "x"}});
  });
  CHECK(message == "JOB_COMPLETION_INDEX is 'x', but must be a whole number of at least 0");
}

TEST_CASE("without tasks CLUSTER_CONFIG describes no cluster") {
  CHECK(summary_of(read_cluster_spec({{"CLUSTER_CONFIG", ""}})) == "rank none");
  CHECK(summary_of(read_cluster_spec({{"CLUSTER_CONFIG", "{}"}})) == "rank none");
  const ClusterSpec both =
      read_cluster_spec({{"CLUSTER_CONFIG", range},
                         {"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})"}});
  CHECK(both.workers() == 1);
  REQUIRE(both.warnings.size() == 1);
  CHECK(both.warnings[0].find("CLUSTER_CONFIG is ignored") == 0);
  const std::string hidden = message_of([] {
    return read_cluster_spec({{"CLUSTER_CONFIG", range}, {"TF_CONFIG", "{}"}});
  });
  CHECK(hidden.find("TF_CONFIG describes no cluster, but CLUSTER_CONFIG is set") == 0);
}

TEST_CASE("what describes no task is ignored with a warning") {
  const ClusterSpec spec =
      in_pod(R"({"worker": {"address": "w-{}:1", "count": "2", "gpus": 4}, "isGpu": true, "ps": ["p:1"]})", "w-1");
  CHECK(spec.workers() == 2);
  REQUIRE(spec.warnings.size() == 3);
  std::string all;
  for (const std::string& warning : spec.warnings) all += warning + "\n";
  for (const char* word : {"'gpus'", "'isGpu'", "'ps', which is not supported"}) {
    CHECK(all.find(word) != std::string::npos);
  }
}

TEST_CASE("mistakes in CLUSTER_CONFIG are named") {
  struct Refused {
    std::string config;
    std::string pod;
    std::string words;
  };
  for (const Refused& refused : std::vector<Refused>{
           {range, "other-0", "POD_NAME is 'other-0', but no task"},
           {range, "j-worker-12-x", "POD_NAME is 'j-worker-12-x'"},
           {range, "", "neither POD_NAME nor JOB_COMPLETION_INDEX"},
           {R"({"ps": ["p-0:1"], "worker": ["w-0:1"]})", "p-0", "task is of type 'ps', which is not supported"},
           {R"({"worker": ["a"]})", "a", "CLUSTER_CONFIG's worker[0] is 'a', which has no port"},
           {R"({"worker": ["a:1", "a:1"]})", "a", "the same address 'a:1'"},
           {R"({"trainer": ["a:1"]})", "a", "unknown type 'trainer'; the types are chief (or master), worker, ps and"},
           {R"({"worker": ["a:1"], "worker": ["b:1"]})", "a", "has the key 'worker' twice"},
           {R"({"worker": {"address": "w-{}:1", "count": 1, "count": 2,}})", "w", "has the key 'count' twice"},
           {R"({"worker": "a:1,b:1"})", "a", "CLUSTER_CONFIG's worker is 'a:1,b:1', but must be a list"},
           {R"({"worker": []})", "a", "CLUSTER_CONFIG lists no task"},
           {R"({"worker": {"address": "w-{}:1", "count": 0}})", "w-0", "CLUSTER_CONFIG lists no task"},
           {R"({"worker": ["t-0.a:1", "t-0.b:1"]})", "t-0", "worker 0 and worker 1 both have the host name 't-0'"},
           {R"({"chief": ["a:1", "b:1"]})", "a", "CLUSTER_CONFIG's cluster.chief lists 2 tasks"},
           {R"({"worker": {"address": "w:1", "count": 2}})", "w", "with {} in place of the index"},
           {R"({"worker": {"address": "{}-{}:1", "count": 2}})", "w", "with {} in place of the index"},
           {R"({"worker": {"address": 1, "count": 2}})", "w", "worker.address is 1"},
           {R"({"worker": {"address": "w-{}:1"}})", "w", "no count"},
           {R"({"worker": {"adress": "w-{}:1", "count": 2}})", "w", "CLUSTER_CONFIG's worker.address is"},
           {R"({"worker": {"address": "w-{}:1", "count": -1}})", "w", "worker.count is -1"},
           {R"({"worker": {"address": "w-{}:1", "count": 1.9}})", "w", "worker.count is 1.9, but must be"},
           {R"({"worker": {"address": "w-{}:1", "count": true}})", "w", "worker.count is true"},
           {R"({"worker": {"address": "w-{}:1", "count": 100001}})", "w", "the limit is 100000"},
           {R"({"worker": {"address": "w-{}:0", "count": 1}})", "w", "CLUSTER_CONFIG's worker[0]"},
           {"[1]", "a", "CLUSTER_CONFIG is a list"},
           {"{'worker': 1}", "a", "use double quotes"},
           {"/etc/cluster.yaml", "a", "CLUSTER_CONFIG is not valid JSON"},
           {std::string((std::size_t{1} << 20U) + 1, ' '), "a", "more than the limit"},
       }) {
    const std::string message = message_of([&] { return in_pod(refused.config, refused.pod); });
    INFO(message);
    CHECK(message.find(refused.words) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("options of TensorFlow 1 describe a cluster") {
  CHECK(summary_of(with_options({"--job_name=worker", "--task_index=1", "--worker_hosts=a:1,b:2", "--ps_hosts="})) ==
        "worker 0 a:1, worker 1 b:2, rank 1");
  CHECK(summary_of(with_options({"--job_name", "master", "--task_index", "0", "--worker_hosts", "a:1", "--master_hosts",
                                 "m:1", "--ps_hosts", "p:1"})) == "master 0 m:1, worker 0 a:1, rank 0");
  CHECK(summary_of(with_options({"--job_name=", "--worker_hosts="})) == "rank none");
  CHECK(summary_of(with_options({"--", "--job_name=worker"})) == "rank none");

  std::vector<std::string> args{
      "--epochs", "3", "--job_name=worker", "--task_index", "0", "x", "--worker_hosts=a:1,b:1", "--", "--job_name=y"};
  Environment environment;
  CHECK(take_task_options(args, environment).empty());
  CHECK(args == std::vector<std::string>{"--epochs", "3", "x", "--", "--job_name=y"});
  args = {"--job_name=worker", "--task_index=0", "--worker_hosts=a:1", "--ps_hosts=p:1"};
  environment.clear();
  CHECK(take_task_options(args, environment).empty());
  CHECK(read_cluster_spec(environment).warnings.size() == 1);  // ps tasks take no part
  environment["LOCKSTEP_STRATEGY"] = "parameter-server";
  CHECK(read_cluster_spec(environment).servers.size() == 1);
  args = {"--job_name=ps", "--task_index=0", "--worker_hosts=a:1", "--ps_hosts=p:1"};
  environment = {{"LOCKSTEP_STRATEGY", "parameter-server"}};
  (void)take_task_options(args, environment);
  CHECK(read_cluster_spec(environment).server == 0U);
}

TEST_CASE("mistakes in the options of TensorFlow 1 are named") {
  struct Refused {
    std::vector<std::string> args;
    std::string words;
  };
  const std::string hosts = "--worker_hosts=a:1,b:1";
  for (const Refused& refused : std::vector<Refused>{
           {{"--job_name=ps", "--task_index=0", "--ps_hosts=p:1", hosts}, "type 'ps', which is not supported"},
           {{"--job_name=worker", hosts}, "without --task_index"},
           {{hosts}, "--worker_hosts is given without --job_name"},
           {{"--job_name=worker", "--task_index=0"}, "without --worker_hosts"},
           {{"--job_name=worker", "--task_index=2", hosts}, "lists 2 of them, 0 to 1"},
           {{"--job_name=worker", "--task_index=x", hosts}, "--task_index is 'x'"},
           {{"--job_name=worker", "--task_index=-1", hosts}, "--task_index is '-1'"},
           {{"--job_name=worker", "--task_index=0", "--worker_hosts=a:1,b"},
            "worker_hosts[1] is 'b', which has no port"},
           {{"--job_name=worker", "--task_index=0", "--worker_hosts=a:1,,b:1"}, "worker_hosts[1] is ''"},
           {{"--job_name=worker", "--job_name=worker"}, "--job_name is given twice"},
           {{"--job_name"}, "--job_name needs a value"},
           {{"--job_name=trainer", "--task_index=0", hosts}, "unknown type 'trainer'"},
       }) {
    const std::string message = message_of([&] { return with_options(refused.args); });
    INFO(message);
    CHECK(message.find(refused.words) != std::string::npos);
  }
  for (const char* variable : {"TF_CONFIG", "CLUSTER_CONFIG"}) {
    std::vector<std::string> args{"--job_name=worker"};
    Environment environment{{variable, "{}"}};
    CHECK_THROWS_AS(take_task_options(args, environment), UsageError);
  }
}

TEST_CASE("a cluster survives being written as TF_CONFIG") {
  const ClusterSpec spec = in_pod(R"({"master": ["m:1"], "worker": {"2": "[fd00::7]:80", "0": "a:1"}})", "a");
  ClusterSpec again = parse_tf_config(to_tf_config(spec));
  CHECK(again == spec);
  CHECK(again.digest().to_string() == spec.digest().to_string());
  CHECK(to_tf_config({}).empty());
  CHECK(to_tf_config(in_pod(R"({"worker": {"address": "w-{}:1", "count": 2}})", "w-1")) ==
        R"({"cluster":{"worker":["w-0:1","w-1:1"]},"task":{"index":1,"type":"worker"}})");
}
