// Serves the newest model of a directory: loads it, computes predictions in batches, and replaces it by a newer one.
#pragma once

#include "cluster/net/socket.hpp"
#include "serve/http_server.hpp"
#include "serve/served_model.hpp"

#include <lockstep/training/strategy.hpp>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

struct ServeOptions {
  std::filesystem::path model;  ///< a file, or a directory whose newest model is served
  std::string name = "model";   ///< in paths
  std::size_t max_batch = 64;   ///< examples that are computed at once
  std::chrono::microseconds max_delay{0};
  std::size_t max_waiting = 4096;  ///< examples; a request beyond is answered with 503
  double max_rate = 0;             ///< requests for predictions per second of one client; 0: no limit
  HttpLimits http = {};
};

/// What is known of a model beside its file.
struct ModelFacts {
  std::map<std::string, double> scores = {};
  std::optional<double> input_scale = {};  ///< of the bytes that it was trained on
};
using ReadFacts =
    std::function<ModelFacts(const std::filesystem::path& model, const std::optional<std::uint64_t>& iterations)>;

/// SIGTERM and SIGINT.
[[nodiscard]] sigset_t ending_signals() noexcept;

/// Serves until one of the ending signals, which must be blocked in all threads. While the newest file cannot be
/// served, the newest one that can be is; each failure is told of once. Throws at the start if `options.model` is a
/// file that cannot be served. `strategy` must have one worker.
void serve_models(MultiWorkerMirroredStrategy& strategy, const Socket& listener, const ServeOptions& options,
                  const ReadFacts& read_facts);

}  // namespace lockstep
