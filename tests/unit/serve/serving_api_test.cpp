// The paths of a server, the queue behind them, and which file is the newest model.
#include "serve/serving_api.hpp"
#include "checkpoint/newest_model.hpp"
#include "serve/prediction_queue.hpp"
#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

#include <nlohmann/json.hpp>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

thread_local std::size_t max_allocation = std::numeric_limits<std::size_t>::max();  // bytes that operator new gives

}  // namespace

// Replaces every form that Catch2 and the library use, so that memory is freed by the allocator that returned it. Not
// inlined, because GCC warns about free() of memory from new.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return size > max_allocation ? nullptr : std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }

using namespace lockstep;
using namespace lockstep::testing;
using namespace std::chrono_literals;

namespace {

struct Server {
  SharedState state;
  PredictionQueue queue{4};
  ServingMetrics metrics;
  ServingApi api{"digits", state, queue, metrics, 0, 12};  // predictions of at most 3 numbers
  std::optional<RestReply> answered = {};

  void serve_model() {
    state.set({.model = std::make_shared<const ServedModel>(
                   ServedModel{.version = {.file = "m/model.h5", .time_ms = 1700},
                               .signature = {.inputs = {{"in", {2}}}, .outputs = {{"out", {1}}}},
                               .scores = {{"test accuracy", 0.5}}})});
  }

  std::optional<RestReply> ask(std::string_view method, std::string_view path, std::string_view body = {}) {
    return api.handle({method, path, body}, [this](RestReply reply) { answered = std::move(reply); });
  }
  int code(std::string_view method, std::string_view path, std::string_view body = {}) {
    const std::optional<RestReply> reply = ask(method, path, body);
    return reply ? reply->code : 0;
  }
};

WaitingRequest of_examples(std::size_t examples) {
  WaitingRequest waiting;
  waiting.request.examples = examples;
  return waiting;
}

void write(const std::filesystem::path& file, std::chrono::seconds age) {
  std::ofstream(file) << "model";
  std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - age);
}

}  // namespace

TEST_CASE("before the first model, a server says so") {
  Server server;
  server.state.set({.problem = "m holds no model yet"});
  CHECK(server.code("GET", "/healthz") == 503);
  CHECK(server.ask("GET", "/healthz")->body == "m holds no model yet\n");
  CHECK(server.code("POST", "/v1/models/digits:predict", R"({"instances": [[1, 2]]})") == 503);
  CHECK(nlohmann::json::parse(server.ask("GET", "/model")->body).at("problem") == "m holds no model yet");
}

TEST_CASE("the paths are TensorFlow Serving's") {
  Server server;
  server.serve_model();
  CHECK(server.code("GET", "/healthz") == 200);
  const auto status = nlohmann::json::parse(server.ask("GET", "/v1/models/digits")->body);
  CHECK(status.at("model_version_status").at(0).at("version") == "1700");
  CHECK(status.at("model_version_status").at(0).at("state") == "AVAILABLE");
  const auto metadata = nlohmann::json::parse(server.ask("GET", "/v1/models/digits/versions/1700/metadata")->body);
  const auto signature = metadata.at("metadata").at("signature_def").at("signature_def").at("serving_default");
  CHECK(signature.at("inputs").at("in").at("tensor_shape").at("dim").at(1).at("size") == "2");
  CHECK(server.ask("GET", "/")->type.starts_with("text/html"));
  CHECK(server.ask("GET", "/metrics")->body.find("lockstep_serve_model_timestamp_seconds 1.7") != std::string::npos);
  for (const char* unknown : {"/v1/models/other", "/v1/models/digits2", "/v1/models/digits/versions/1",
                              "/v1/models/digits/versions/17001", "/v1/models/digits/x", "/x", "/v1/models/"}) {
    CAPTURE(unknown);
    CHECK(server.code("GET", unknown) == 404);
  }
  CHECK(server.code("POST", "/v1/models/digits") == 405);
  CHECK(server.code("GET", "/v1/models/digits:predict") == 405);
  CHECK(server.code("POST", "/healthz") == 405);
  CHECK(server.code("POST", "/v1/models/digits:classify", "{}") == 501);
}

TEST_CASE("a prediction waits in the queue, is answered once, and counted") {
  Server server;
  server.serve_model();
  CHECK(!server.ask("POST", "/v1/models/digits/versions/1700:predict", R"({"instances": [[1, 2], [3, 4]]})"));
  std::vector<WaitingRequest> taken = server.queue.take(8, 0us, 0ms);
  REQUIRE(taken.size() == 1);
  CHECK(taken.front().request.inputs == ExampleValues{{1, 2, 3, 4}});
  taken.front().complete({.outputs = {{0.5F, 1}}, .signature = taken.front().signature});
  REQUIRE(server.answered);
  CHECK(server.answered->body == "{\"predictions\":[[0.5],[1]]}\n");
  CHECK(server.code("POST", "/v1/models/digits:predict", R"({"instances": [[1]]})") == 400);
  CHECK(!server.ask("POST", "/v1/models/digits:predict", R"({"instances": [[1, 2], [1, 2], [1, 2]]})"));
  CHECK(server.code("POST", "/v1/models/digits:predict", R"({"instances": [[1, 2], [1, 2]]})") == 503);
  const std::string metrics = server.ask("GET", "/metrics")->body;
  for (const char* line : {"requests_total{code=\"200\"} 1\n", "requests_total{code=\"400\"} 1\n",
                           "requests_total{code=\"503\"} 1\n", "waiting_examples 3\n"}) {
    CAPTURE(line);
    CHECK(metrics.find(line) != std::string::npos);
  }
}

TEST_CASE("a request of too many predictions is refused before it waits") {
  Server server;
  server.serve_model();
  const std::optional<RestReply> reply =
      server.ask("POST", "/v1/models/digits:predict", R"({"instances": [[1, 2], [1, 2], [1, 2], [1, 2]]})");
  REQUIRE(reply);
  CHECK(reply->code == 413);
  CHECK(
      reply->body ==
      "{\"error\":\"the predictions for 4 examples have 4 numbers, more than 3, a quarter of the bytes of --max-body; "
      "send fewer examples in a request, or raise --max-body\"}\n");
  CHECK(server.queue.size() == 0);
  CHECK(!server.ask("POST", "/v1/models/digits:predict", R"({"instances": [[1, 2], [1, 2], [1, 2]]})"));
}

TEST_CASE("a reply that does not fit into memory becomes a 503") {
  Server server;
  server.serve_model();
  CHECK(!server.ask("POST", "/v1/models/digits:predict", R"({"instances": [[1, 2]]})"));
  std::vector<WaitingRequest> taken = server.queue.take(8, 0us, 0ms);
  REQUIRE(taken.size() == 1);
  const Prediction made{.outputs = {std::vector<float>(10'000, 0.5F)},
                        .signature = {.inputs = {{"in", {2}}}, .outputs = {{"out", {10'000}}}}};
  max_allocation = 10'000;
  taken.front().complete(made);
  max_allocation = std::numeric_limits<std::size_t>::max();
  REQUIRE(server.answered);
  CHECK(server.answered->code == 503);
  CHECK(server.answered->body.find("too little memory") != std::string::npos);
  CHECK(server.ask("GET", "/metrics")->body.find("requests_total{code=\"503\"} 1\n") != std::string::npos);
}

TEST_CASE("a request that comes after the queue has stopped is told so") {
  Server server;
  server.serve_model();
  server.queue.stop();
  const std::optional<RestReply> reply = server.ask("POST", "/v1/models/digits:predict", R"({"instances": [[1, 2]]})");
  REQUIRE(reply);
  CHECK(reply->code == 503);
  CHECK(reply->body.find("the server is stopping") != std::string::npos);
}

TEST_CASE("a batch is the oldest requests, as many as fit") {
  PredictionQueue queue(100);
  for (const std::size_t examples : {3U, 3U, 3U, 20U}) CHECK(queue.submit(of_examples(examples)));
  CHECK(queue.take(8, 0us, 0ms).size() == 2);
  CHECK(queue.take(8, 0us, 0ms).size() == 1);
  CHECK(queue.take(8, 0us, 0ms).front().request.examples == 20);  // larger than a batch, so by itself
  CHECK(queue.take(8, 0us, 0ms).empty());
  CHECK(queue.submit(of_examples(1000)));  // nothing waits
  CHECK(!queue.submit(of_examples(1)));
  queue.stop();
  CHECK(queue.size() == 1000);
  CHECK(queue.take(8, 0us, 1h).size() == 1);
  CHECK(!queue.submit(of_examples(1)));
}

TEST_CASE("the newest whole model of a directory is found") {
  const ScratchDirectory scratch;
  const std::filesystem::path& folder = scratch.path();
  CHECK(!newest_model(folder));
  CHECK(!newest_model(folder / "later.h5"));
  write(folder / "old.h5", 60s);
  write(folder / "new.keras", 30s);
  write(folder / "weights.weights.h5", 1s);
  write(folder / ".model.h5.1f09c3d2.tmp", 1s);
  write(folder / ".hidden.h5", 1s);
  write(folder / "fit-1-step-0000000700.h5", 1s);
  write(folder / "history.json", 1s);
  std::filesystem::create_directory(folder / "folder.keras");
  CHECK(newest_model(folder)->file == folder / "new.keras");
  const std::filesystem::path versions = folder / "versions";
  for (const char* name : {"9", "10", "10x", "-11", "best"}) {
    std::filesystem::create_directories(versions / name);
    if (name != std::string("10")) write(versions / name / "model.h5", 0s);
  }
  CHECK(newest_model(versions)->file == versions / "9" / "model.h5");  // version 10 is not whole yet
  write(versions / "10" / "model.h5", 100s);
  CHECK(newest_model(versions)->file == versions / "10" / "model.h5");
  CHECK(numbered_directories(versions).size() == 2);
  const std::optional<ModelVersion> before = newest_model(folder / "old.h5");
  write(folder / "old.h5", 10s);
  CHECK(newest_model(folder)->file == folder / "old.h5");
  CHECK(newest_model(folder / "old.h5") != before);
}

TEST_CASE("the models of a path are listed from the newest to the oldest") {
  const ScratchDirectory scratch;
  const auto files_of = [](const std::filesystem::path& path) {
    std::vector<std::string> files;
    for (const ModelVersion& model : models_of(path)) files.push_back(relative(model.file, path).string());
    return files;
  };
  for (const char* version : {"2", "9", "10"}) std::filesystem::create_directory(scratch.path() / version);
  CHECK(files_of(scratch.path()).empty());
  write(scratch.path() / "2" / "model.h5", 1s);
  write(scratch.path() / "9" / "a.h5", 30s);
  write(scratch.path() / "9" / "b.h5", 20s);
  write(scratch.path() / "10" / "model.h5", 60s);
  CHECK(files_of(scratch.path()) == std::vector<std::string>{"10/model.h5", "9/b.h5", "9/a.h5", "2/model.h5"});
  write(scratch.path() / "old.h5", 60s);
  write(scratch.path() / "new.keras", 30s);
  CHECK(files_of(scratch.path()) == std::vector<std::string>{"new.keras", "old.h5"});
  CHECK(models_of(scratch.path() / "old.h5").size() == 1);
}

TEST_CASE("a model that is dated in the future does not hide a later one") {
  const ScratchDirectory scratch;
  const std::filesystem::path ahead = scratch.path() / "ahead.h5";
  const std::filesystem::path later = scratch.path() / "later.h5";
  write(ahead, -24h);
  std::this_thread::sleep_for(50ms);  // longer than a tick of the clock that dates files
  write(later, 0s);
  CHECK(newest_model(scratch.path())->file == later);
  write(later, 1h);  // a copy that keeps its old time
  CHECK(newest_model(scratch.path())->file == ahead);
  std::filesystem::rename(ahead, scratch.path() / "fit-1-step-0000000700.h5");
  std::this_thread::sleep_for(50ms);
  write(scratch.path() / "fit-1-step-0000000800.h5", 0s);
  CHECK(newest_backup(scratch.path())->file == scratch.path() / "fit-1-step-0000000800.h5");
}
