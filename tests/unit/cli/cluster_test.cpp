// `lockstep cluster`, called in this process: tables, JSON and exit codes.
#include "cluster/net/socket.hpp"
#include "core/clock.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"
#include "support/sockets.hpp"
#include "unit/cli/run_lockstep.hpp"

#include <nlohmann/json.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;
using nlohmann::json;

namespace {

Result run(std::vector<std::string> args) {
  args.insert(args.begin(), "cluster");
  return run_lockstep(args);
}

std::string config(const std::string& workers, int index) {
  return R"({"cluster": {"worker": [)" + workers + R"(]}, "task": {"type": "worker", "index": )" +
         std::to_string(index) + "}}";
}

std::string quoted(const std::string& text) { return '"' + text + '"'; }

}  // namespace

TEST_CASE("a cluster is printed without probing") {
  const Result shown = run({"--no-probe", "--tf-config",
                            R"({"cluster": {"worker": ["w0:5000", "worker-1:5001"], "chief": ["c:1"], "ps": ["p:2",]},
                                "task": {"type": "worker", "index": 1}})"});
  CHECK(shown.code == ExitCode::success);
  CHECK(shown.err.empty());
  CHECK(shown.out ==
        "warning: TF_CONFIG has a comma before a closing bracket, which JSON does not allow; the comma is ignored\n"
        "warning: TF_CONFIG lists tasks of type 'ps', which is not supported without --strategy parameter-server; they "
        "do not take part in training\n"
        "3 workers; this process is worker 1, the chief is chief 0\n"
        "\n"
        "rank  task      address        state\n"
        "   0  chief 0   c:1\n"
        "   1  worker 0  w0:5000\n"
        "   2  worker 1  worker-1:5001  this process\n");
}

TEST_CASE("parameter servers are listed, and they alone are probed") {
  REQUIRE(setenv("LOCKSTEP_STRATEGY", "parameter-server", 1) == 0);
  const Socket listener = listen_on(0);
  const std::string there = "127.0.0.1:" + std::to_string(port_of(listener));
  const std::string cluster = R"({"cluster": {"worker": ["w.invalid:5000", "v.invalid:5000"], "ps": [)";
  const std::string own = R"("own.invalid:1"]}, "task": {"type": "ps", "index": )";
  const Result shown = run({"--tf-config", cluster + quoted(there) + "," + own + "1}}"});
  CHECK(shown.code == ExitCode::success);
  require_words(shown.out, {"2 workers, 2 parameter servers; this process is ps 1, the chief is worker 0\n",
                            "      ps 0      " + there, "answers (", "ps 1      own.invalid:1    this process"});
  const json document = json::parse(run({"--json", "--no-probe", "--tf-config", cluster + own + "0}}"}).out);
  CHECK(document.at("parameter_servers") == 1);
  CHECK(document.at("rank").is_null());
  CHECK(document.at("tasks").at(0).at("rank") == 0);
  CHECK(document.at("tasks").at(2).at("rank").is_null());
  CHECK(document.at("tasks").at(2).at("type") == "ps");

  const Result missing = run({"--timeout", "2", "--tf-config", cluster + R"("own.invalid:1"]},
      "task": {"type": "worker", "index": 0}})"});
  CHECK(missing.code == ExitCode::temporary);
  require_words(missing.err, {"1 of 1 peers", "(ps 0)"});
  REQUIRE(unsetenv("LOCKSTEP_STRATEGY") == 0);
}

TEST_CASE("a process without TF_CONFIG is valid") {
  for (const std::string text : {"", "{}"}) {
    const Result shown = run({"--tf-config", text});
    CHECK(shown.code == ExitCode::success);
    require_words(shown.out, {"no cluster", "trains alone"});
    const json document = json::parse(run({"--json", "--tf-config", text}).out);
    CHECK(document.at("workers") == 1);
    CHECK(document.at("chief") == true);
    CHECK(document.at("tasks").empty());
  }
}

TEST_CASE("reachable and unreachable peers are reported") {
  const Socket listener = listen_on(0);
  const std::string there = "127.0.0.1:" + std::to_string(port_of(listener));
  const std::string own = "own.invalid:5000";  // the own address is not probed
  const Result well = run({"--tf-config", config(quoted(own) + "," + quoted(there), 0)});
  CHECK(well.code == ExitCode::success);
  CHECK(well.err.empty());
  require_words(well.out, {"2 workers; this process is worker 0, the chief\n", "own.invalid:5000  this process",
                           "worker 1  " + there, "answers (" + there + " in "});

  const std::string away = "does-not-exist.invalid:5000";
  const std::string both = config(quoted(there) + "," + quoted(own) + "," + quoted(away), 1);
  const Result ill = run({"--timeout", "3", "--tf-config", both});
  CHECK(ill.code == ExitCode::temporary);
  require_words(ill.out, {"answers (", "this process", "worker 2", " name", "check that "});
  require_words(ill.err, {"1 of 2 peers", "(worker 2)"});

  const Result told = run({"--json", "--timeout", "3", "--tf-config", both});
  CHECK(told.code == ExitCode::temporary);
  const json document = json::parse(told.out);
  CHECK(document.at("workers") == 3);
  CHECK(document.at("rank") == 1);
  CHECK(document.at("chief") == false);
  CHECK(document.at("digest").get<std::string>().size() == 16);
  CHECK(document.at("tasks").at(0).at("state") == "answers");
  CHECK(document.at("tasks").at(0).at("endpoint") == there);
  CHECK(document.at("tasks").at(0).at("problem").is_null());
  CHECK(document.at("tasks").at(0).at("chief") == true);
  CHECK(document.at("tasks").at(1).at("state") == "this_process");
  CHECK(document.at("tasks").at(2).at("state").get<std::string>().find("name") != std::string::npos);
  CHECK(document.at("tasks").at(2).at("port") == 5000);
  CHECK(document.at("tasks").at(2).at("endpoint").is_null());
  CHECK_FALSE(document.at("tasks").at(2).at("problem").is_null());
}

TEST_CASE("an invalid TF_CONFIG is rejected before probing") {
  const double began = monotonic_seconds();
  const Result wrong = run({"--tf-config", config(R"("a:1", "b")", 0)});
  CHECK(wrong.code == ExitCode::usage);
  CHECK(wrong.out.empty());
  require_words(wrong.err, {"error: TF_CONFIG's cluster.worker[1] is 'b'", "no port"});
  CHECK(run({"--tf-config", "no JSON"}).code == ExitCode::usage);
  CHECK(run({"--timeout", "0"}).code == ExitCode::usage);
  CHECK(run({"--timeout", "nan"}).code == ExitCode::usage);
  CHECK(run({"--timeout", "soon"}).code == ExitCode::usage);
  CHECK(run({"--check"}).code == ExitCode::usage);
  CHECK(monotonic_seconds() - began < 1);
  require_words(run({"--help"}).out, {"lockstep cluster", "--tf-config TEXT|@FILE", "--timeout SECONDS"});
}

TEST_CASE("TF_CONFIG is read from the environment, the command line or a file") {
  REQUIRE(setenv("TF_CONFIG", config(R"("of-variable:1")", 0).c_str(), 1) == 0);
  require_words(run({"--no-probe"}).out, {"1 worker; this process is worker 0, the chief\n", "of-variable:1"});
  require_words(run({}).out, {"of-variable:1"});  // there are no peers to probe
  require_words(run({"--no-probe", "--tf-config", config(R"("of-line:1")", 0)}).out, {"of-line:1"});
  const ScratchDirectory scratch;
  std::ofstream(scratch / "tf_config.json") << config(R"("of-file:1")", 0) << '\n';
  require_words(run({"--no-probe", "--tf-config", "@" + (scratch / "tf_config.json").string()}).out, {"of-file:1"});
  for (const std::string& path : {(scratch / "none").string(), scratch.path().string()}) {
    const Result missing = run({"--tf-config", "@" + path});
    CHECK(missing.code == ExitCode::io);
    require_words(missing.err, {path});
  }
  REQUIRE(unsetenv("TF_CONFIG") == 0);
  require_words(run({}).out, {"no cluster"});
  REQUIRE(setenv("CLUSTER_CONFG", "{}", 1) == 0);
  require_words(run({}).out, {"no option reads the variable CLUSTER_CONFG; did you mean CLUSTER_CONFIG?"});
  REQUIRE(unsetenv("CLUSTER_CONFG") == 0);
}
