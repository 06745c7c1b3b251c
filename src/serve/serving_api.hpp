// What a server answers, path by path: TensorFlow Serving's REST interface for one model, a page for people, and what
// Kubernetes and Prometheus ask for.
#pragma once

#include "serve/http_server.hpp"
#include "serve/prediction_queue.hpp"
#include "serve/rate_limiter.hpp"
#include "serve/served_model.hpp"
#include "serve/serving_metrics.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

///   GET  /                                         page.html
///   GET  /model                                    what the page shows, as JSON
///   GET  /healthz                                  200 once a model is served
///   GET  /metrics
///   GET  /v1/models/NAME[/versions/V]              status
///   GET  /v1/models/NAME[/versions/V]/metadata     signature
///   POST /v1/models/NAME[/versions/V]:predict      predictions
/// Errors are 4xx or 5xx with {"error": "one sentence"}.
class ServingApi {
 public:
  /// The objects must outlive the API and each answer that is still to come.
  /// `max_rate`: requests for predictions per second of one client; 0: no limit.
  /// `max_body_bytes`: of a request; its predictions have at most a quarter as many numbers.
  ServingApi(std::string name, const SharedState& state, PredictionQueue& queue, ServingMetrics& metrics,
             double max_rate = 0, std::size_t max_body_bytes = HttpLimits{}.max_body_bytes)
      : name_(std::move(name)),
        state_(state),
        queue_(queue),
        metrics_(metrics),
        rate_limiter_(max_rate),
        max_numbers_(max_body_bytes / 4) {}

  [[nodiscard]] std::optional<RestReply> handle(const RestRequest& request, const HttpServer::Answer& answer);

 private:
  [[nodiscard]] std::optional<RestReply> handle_model(const RestRequest& request, const HttpServer::Answer& answer);
  [[nodiscard]] std::optional<RestReply> predict(const RestRequest& request, const HttpServer::Answer& answer);

  std::string name_;
  const SharedState& state_;
  PredictionQueue& queue_;
  ServingMetrics& metrics_;
  RateLimiter rate_limiter_;
  std::size_t max_numbers_;  ///< in the predictions of a request
};

}  // namespace lockstep
