// See serve.hpp.
#include "cli/serve.hpp"

#include "checkpoint/model_file.hpp"
#include "cli/exporters.hpp"
#include "cli/history_summary.hpp"
#include "cluster/net/socket.hpp"
#include "core/descriptor_limit.hpp"
#include "core/log.hpp"
#include "options/read_value.hpp"
#include "serve/model_server.hpp"
#include "training/parse_or_exit.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/strategy.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pthread.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t own_descriptors = 64;  // files, and what MPI and libevent need

struct ServeSettings {
  ServeOptions options;
  std::uint16_t port = 8501;
};

std::string read_name(const OptionValue& given) {
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  if (given.value.empty() || given.value.size() > 128 || !std::ranges::all_of(given.value, is_plain))
    refuse(given, "letters, digits, '.', '-' and '_'");
  return given.value;
}

std::vector<ProgramOption> serve_options(ServeSettings& settings) {
  ServeOptions& options = settings.options;
  ConnectionLimits& connections = options.http.connections;
  return {
      {.name = "model",
       .metavar = "PATH",
       .help = "a .keras or .h5 file, or a directory whose newest\nmodel is served, also when it is replaced",
       .shown_default = "required",
       .set = [&options](const OptionValue& given) { options.model = given.value; }},
      {.name = "rest-api-port",
       .metavar = "N",
       .help = "of HTTP, on all interfaces; 0: any free one",
       .shown_default = "8501",
       .set = [&settings](const OptionValue& given) { settings.port = read_whole<std::uint16_t>(given, 0); }},
      {.name = "model-name",
       .metavar = "NAME",
       .help = "of the model in paths, /v1/models/NAME:predict",
       .shown_default = "model",
       .set = [&options](const OptionValue& given) { options.name = read_name(given); }},
      {.name = "max-batch",
       .metavar = "N",
       .help = "examples that are computed at once",
       .shown_default = "64",
       .set = [&options](const OptionValue& given) { options.max_batch = read_whole<std::size_t>(given, 1, 4096); }},
      {.name = "max-delay",
       .metavar = "MS",
       .help = "milliseconds that a request waits for others to\nbe computed with it",
       .shown_default = "0",
       .set =
           [&options](const OptionValue& given) {
             const double ms = read_number(
                 given, [](double number) { return number >= 0 && number <= 1000; }, "from 0 to 1000");
             options.max_delay = std::chrono::microseconds(std::lround(1000 * ms));
           }},
      {.name = "max-waiting",
       .metavar = "N",
       .help = "examples that wait; requests beyond get a 503",
       .shown_default = "4096",
       .set = [&options](const OptionValue& given) { options.max_waiting = read_whole<std::size_t>(given, 1); }},
      {.name = "max-body",
       .metavar = "MIB",
       .help = "of a request, in MiB; larger ones get a 413, as do\npredictions of more numbers than a quarter of it",
       .shown_default = "16",
       .set =
           [&options](const OptionValue& given) {
             options.http.max_body_bytes = read_whole<std::size_t>(given, 1, 1024) << 20U;
           }},
      {.name = "max-received",
       .metavar = "MIB",
       .help = "of all requests that are not answered, in MiB;\na connection that sends more is closed",
       .shown_default = "512",
       .set =
           [&connections](const OptionValue& given) {
             connections.max_received_bytes = read_whole<std::size_t>(given, 1, 1U << 20U) << 20U;
           }},
      {.name = "max-connections",
       .metavar = "N",
       .help = "beyond, the one that has waited longest for a\nrequest is closed",
       .shown_default = "10000",
       .set =
           [&connections](const OptionValue& given) {
             connections.max_connections = read_whole<std::size_t>(given, 1, 100'000);
           }},
      {.name = "request-timeout",
       .metavar = "SECONDS",
       .help = "in which a request must arrive whole",
       .shown_default = "30",
       .set =
           [&connections](const OptionValue& given) {
             connections.request_seconds = read_number(
                 given, [](double number) { return number >= 1 && number <= 3600; }, "from 1 to 3600");
           }},
      {.name = "max-rate",
       .metavar = "N",
       .help = "requests for predictions per second from one\naddress; more get a 429; 0: no limit",
       .shown_default = "0",
       .set =
           [&options](const OptionValue& given) {
             options.max_rate = read_number(
                 given, [](double number) { return number >= 0 && number <= 1e9; }, "from 0 to 1e9");
           }},
  };
}

/// Of the evaluation.json beside a model that an evaluator has exported.
ModelFacts read_exported_facts(const std::filesystem::path& model) {
  constexpr std::uintmax_t max_bytes = 1 << 20;
  ModelFacts facts;
  const std::filesystem::path path = model.parent_path() / "evaluation.json";
  std::error_code unknown;
  if (const std::uintmax_t bytes = std::filesystem::file_size(path, unknown); unknown || bytes > max_bytes)
    return facts;
  std::ifstream file(path, std::ios::binary);
  const auto read = nlohmann::json::parse(file, nullptr, false);
  if (!read.is_object()) return facts;
  for (const auto& [name, value] : read.items()) {
    if (!value.is_number()) continue;
    if (name == input_scale_key) {
      facts.input_scale = value.get<double>();
    } else {
      facts.scores["test " + name] = value.get<double>();
    }
  }
  return facts;
}

ModelFacts facts_of(const std::filesystem::path& model, const std::optional<std::uint64_t>& iterations) {
  try {
    const std::optional<HistorySummary> history = read_history_of(model, iterations);
    if (!history) return read_exported_facts(model);
    ModelFacts facts{.scores = history->last_logs, .input_scale = history->input_scale};
    if (!history->evaluation.empty()) facts.scores.clear();
    for (const auto& [name, value] : history->evaluation) facts.scores["test " + name] = value;
    return facts;
  } catch (const Error&) {
    return {};  // `lockstep inspect` tells what is wrong with it
  }
}

/// A connection that has no descriptor would wait for ever, whatever the others are for.
void bound_connections(ConnectionLimits& limits) {
  const std::size_t descriptors = raise_descriptor_limit();
  const std::size_t possible = descriptors > 2 * own_descriptors ? descriptors - own_descriptors : descriptors / 2;
  if (possible >= limits.max_connections) return;
  log_warning(
      fmt::format("the limit of {} open files is too low for {} connections, so there may be {}; raise it (ulimit -n)",
                  descriptors, limits.max_connections, possible));
  limits.max_connections = possible;
}

}  // namespace

void serve(std::span<const std::string> args) {
  // Before any thread starts: the server waits for these itself, and ends when all requests are answered.
  const sigset_t handled = ending_signals();
  pthread_sigmask(SIG_BLOCK, &handled, nullptr);
  (void)std::signal(SIGPIPE, SIG_IGN);  // a client that has gone
  ServeSettings settings;
  const Options options =
      parse_or_exit(args, {.model_dir = {}, .verbose = 0, .program = "lockstep serve"}, serve_options(settings),
                    {"Answers requests for predictions over HTTP, with the newest model of a directory", false, true});
  if (settings.options.model.empty())
    throw UsageError("lockstep serve needs --model PATH: a .keras or .h5 file, or a directory of models");
  bound_connections(settings.options.http.connections);
  const std::filesystem::path& model = settings.options.model;
  if (std::error_code unknown; is_model_file_name(model) && !std::filesystem::exists(model, unknown) && !unknown) {
    throw UsageError(fmt::format(
        "--model is {}, which does not exist; name a file that is there, or a directory, to wait for its first model",
        model.string()));
  }
  if (std::error_code unknown; std::filesystem::is_regular_file(model, unknown) && !is_model_file_name(model)) {
    throw UsageError(
        fmt::format("--model is {}, which is no model by its name: it ends in .keras, .h5 or .hdf5", model.string()));
  }
  MultiWorkerMirroredStrategy strategy{options};
  if (strategy.num_workers() > 1)
    throw UsageError("lockstep serve is one process; start as many as you need behind a load balancer, without mpirun");
  const Socket listener = listen_on(settings.port, SOMAXCONN, "with --rest-api-port");
  log_info(fmt::format("listening on port {}: /v1/models/{}:predict, /healthz, /metrics, and a page at /",
                       port_of(listener), settings.options.name));
  serve_models(strategy, listener, settings.options, facts_of);
}

}  // namespace lockstep
