// See serving_metrics.hpp.
#include "serve/serving_metrics.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

void ServingMetrics::count_reply(int code, double seconds) {
  const auto bucket =
      static_cast<std::size_t>(std::distance(bounds.begin(), std::ranges::lower_bound(bounds, seconds)));
  const std::lock_guard guard(mutex_);
  ++replies_[code];
  ++latencies_[bucket];
  seconds_ += seconds;
}

void ServingMetrics::count_batch(std::size_t examples) {
  const std::lock_guard guard(mutex_);
  ++batches_;
  examples_ += examples;
}

void ServingMetrics::count_load(bool has_succeeded) {
  const std::lock_guard guard(mutex_);
  ++(has_succeeded ? loads_ : failed_loads_);
}

std::string ServingMetrics::to_text(const ServedState& state, std::size_t waiting,
                                    const ConnectionTable* connections) const {
  std::string text;
  const auto describe = [&](std::string_view name, std::string_view type, std::string_view help) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  };
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help, auto value) {
    describe(name, type, help);
    text += fmt::format("{} {}\n", name, value);
  };
  const std::lock_guard guard(mutex_);
  describe("lockstep_serve_requests_total", "counter", "Requests for predictions, by the reply's status.");
  for (const auto& [code, count] : replies_)
    text += fmt::format("lockstep_serve_requests_total{{code=\"{}\"}} {}\n", code, count);
  describe("lockstep_serve_request_seconds", "histogram", "From a request for predictions to its reply.");
  std::uint64_t up_to = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    up_to += latencies_[i];
    text += fmt::format("lockstep_serve_request_seconds_bucket{{le=\"{}\"}} {}\n", bounds[i], up_to);
  }
  up_to += latencies_.back();
  text += fmt::format(
      "lockstep_serve_request_seconds_bucket{{le=\"+Inf\"}} {0}\nlockstep_serve_request_seconds_sum {1}\n"
      "lockstep_serve_request_seconds_count {0}\n",
      up_to, seconds_);
  add("lockstep_serve_batches_total", "counter", "Batches that were computed.", batches_);
  add("lockstep_serve_examples_total", "counter", "Examples in these batches.", examples_);
  add("lockstep_serve_waiting_examples", "gauge", "Examples that wait for the model.", waiting);
  if (connections != nullptr) {
    add("lockstep_serve_connections", "gauge", "Connections that are open.", connections->size());
    add("lockstep_serve_received_bytes", "gauge", "Bytes of requests that are not answered.",
        connections->received_bytes());
    describe("lockstep_serve_connections_ended_total", "counter", "Connections that the server ended, by reason.");
    for (std::size_t i = 0; i < end_of_connection_names.size(); ++i) {
      text += fmt::format("lockstep_serve_connections_ended_total{{reason=\"{}\"}} {}\n", end_of_connection_names[i],
                          connections->ended(static_cast<EndOfConnection>(i)));
    }
  }
  add("lockstep_serve_model_loads_total", "counter", "Models that were loaded.", loads_);
  add("lockstep_serve_model_load_failures_total", "counter", "Files that could not be loaded.", failed_loads_);
  if (state.model) {
    add("lockstep_serve_model_timestamp_seconds", "gauge", "When the served model was written.",
        static_cast<double>(state.model->version.time_ms) / 1000);
  }
  return text;
}

}  // namespace lockstep
