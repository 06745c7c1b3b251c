#include "report/history_json.hpp"

#include <nlohmann/json.hpp>
#include <limits>

#include "support/catch.hpp"

using namespace lockstep;
using nlohmann::json;

namespace {

RunReport sample() {
  RunReport report;
  report.model = "sequential";
  report.history.epochs = {{0, {{"loss", 2.25}, {"accuracy", 0.125}, {"val_loss", 2.5}}, 1.5, 6000.0},
                           {1, {{"loss", 1.25}, {"accuracy", 0.5}, {"val_loss", 1.5}}, 1.25, 7200.0}};
  report.config = {{"epochs", 2},
                   {"seed", std::numeric_limits<std::uint64_t>::max()},
                   {"learning_rate", 0.001},
                   {"deterministic", false},
                   {"data_dir", "/data/\"mnist\"\n"}};
  report.world = {{"workers", 2}, {"hosts", 1}, {"communication", "shared memory (2 ranks)"}, {"device", "cpu"}};
  report.versions = {{"lockstep", "0.1.0"}};
  report.timing = {.seconds_to_first_step = 0.25, .peak_memory_mb = 210, .steps = 140};
  report.timing.profile_ms_per_step = {{"forward", 1.5}};
  report.timing.operations_ms_per_step = {{"dense dense_1", 0.25}};
  report.evaluation = {{"loss", 1.125}, {"accuracy", 0.625}};
  report.generations = {{1, 2, 1000.5, 1010, "worker 1 left"}};
  return report;
}

}  // namespace

TEST_CASE("history.json records the run", "[history]") {
  const std::string text = history_json(sample());
  CHECK(text.back() == '\n');
  const json read = json::parse(text);
  CHECK(read["model"] == "sequential");
  REQUIRE(read["epochs"].size() == 2);
  CHECK(read["epochs"][1] == json{{"epoch", 1},
                                  {"loss", 1.25},
                                  {"accuracy", 0.5},
                                  {"val_loss", 1.5},
                                  {"seconds", 1.25},
                                  {"examples_per_second", 7200.0}});
  CHECK(read["config"]["epochs"] == 2);
  CHECK(read["config"]["seed"] == std::numeric_limits<std::uint64_t>::max());
  CHECK(read["config"]["deterministic"] == false);
  CHECK(read["config"]["data_dir"] == "/data/\"mnist\"\n");
  CHECK(read["world"]["workers"] == 2);
  CHECK(read["versions"]["lockstep"] == "0.1.0");
  CHECK(read["timing"]["seconds_to_first_step"] == 0.25);
  CHECK(read["timing"]["steps"] == 140);
  CHECK(read["timing"]["profile_ms_per_step"]["forward"] == 1.5);
  CHECK(read["timing"]["operations_ms_per_step"]["dense dense_1"] == 0.25);
  CHECK(read["evaluation"] == json{{"loss", 1.125}, {"accuracy", 0.625}});
  CHECK(read["generations"] ==
        json::array(
            {{{"generation", 1}, {"ranks", 2}, {"began", 1000.5}, {"ended", 1010.0}, {"reason", "worker 1 left"}}}));
}

TEST_CASE("history.json tells what became of the workers' gradients", "[history]") {
  RunReport report = sample();
  GradientCounts gradients{.dropped = 2};
  gradients.add_applied(0);
  gradients.add_applied(33);
  report.history.epochs[1].gradients = {gradients, {}};
  const json read = json::parse(history_json(report));
  CHECK_FALSE(read["epochs"][0].contains("gradients_of_workers"));
  const json& its = read["epochs"][1]["gradients_of_workers"];
  REQUIRE(its.size() == 2);
  CHECK(its[0]["applied"] == 2);
  CHECK(its[0]["dropped"] == 2);
  CHECK(its[0]["staleness"] ==
        json{{"0", 1}, {"1", 0}, {"2", 0}, {"4", 0}, {"8", 0}, {"16", 0}, {"32", 0}, {"more", 1}});
}

// scripts/train.sh reads the file's last accuracy as the evaluation's.
TEST_CASE("the evaluation follows the epochs", "[history]") {
  const std::string text = history_json(sample());
  CHECK(text.find("\"evaluation\"") > text.rfind("examples_per_second"));
  CHECK(text.rfind("\"accuracy\": 0.625") == text.rfind("\"accuracy\""));
}

TEST_CASE("numbers round-trip exactly", "[history]") {
  RunReport report = sample();
  report.history.epochs[0].logs["loss"] = 0.1 + 0.2;
  CHECK(json::parse(history_json(report))["epochs"][0]["loss"].get<double>() == 0.1 + 0.2);
}

TEST_CASE("non-finite numbers become null", "[history]") {
  RunReport report = sample();
  report.history.epochs[0].logs["loss"] = std::numeric_limits<double>::quiet_NaN();
  report.history.epochs[1].logs["loss"] = std::numeric_limits<double>::infinity();
  report.config["learning_rate"] = std::numeric_limits<double>::quiet_NaN();
  report.timing = {};
  const json read = json::parse(history_json(report));
  CHECK(read["epochs"][0]["loss"].is_null());
  CHECK(read["epochs"][1]["loss"].is_null());
  CHECK(read["config"]["learning_rate"].is_null());
  CHECK(read["timing"]["seconds_to_first_step"].is_null());
  CHECK(read["timing"]["peak_memory_mb"].is_null());
}

TEST_CASE("a path that is not UTF-8 does not corrupt the history", "[history]") {
  RunReport report = sample();
  report.config["data_dir"] = std::string("/data/\xff\xfe");
  CHECK(json::parse(history_json(report))["config"]["data_dir"] == "/data/\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_CASE("a run without epochs has a valid history", "[history]") {
  const json read = json::parse(history_json({}));
  CHECK(read["epochs"] == json::array());
  CHECK(read["config"] == json::object());
  CHECK(read["timing"]["profile_ms_per_step"] == json::object());
  CHECK_FALSE(read.contains("evaluation"));
}
