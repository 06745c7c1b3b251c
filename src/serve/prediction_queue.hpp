// Requests that wait for the model. Those that come while a batch is computed form the next one, so that batches grow
// with the load and a lone request waits for nobody.
#pragma once

#include "serve/predict_json.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The error of a request that is answered with 503 for want of memory.
inline constexpr std::string_view out_of_memory =
    "the server has too little memory for this request; send fewer examples, or try again later";

/// What became of a request: outputs for its examples, or why there are none.
struct Prediction {
  ExampleValues outputs = {};
  ModelSignature signature = {};  ///< of the model that computed them
  int code = 200;                 ///< of HTTP
  std::string error = {};
};

struct WaitingRequest {
  PredictRequest request;
  ModelSignature signature;                         ///< that the request was read for
  std::function<void(const Prediction&)> complete;  ///< called once, by the thread that takes the request
};

class PredictionQueue {
 public:
  explicit PredictionQueue(std::size_t max_examples) : max_examples_(max_examples) {}

  /// Returns false if so many examples wait already that the request must be refused. Any thread may call it.
  [[nodiscard]] bool submit(WaitingRequest request);

  /// Waits up to `patience` for a request, then up to `delay` for more, and takes the oldest ones: at most
  /// `max_examples`, or one request that has more.
  [[nodiscard]] std::vector<WaitingRequest> take(std::size_t max_examples, std::chrono::microseconds delay,
                                                 std::chrono::milliseconds patience);

  /// Makes take() return at once. Any thread may call it.
  void stop();
  [[nodiscard]] bool is_stopped() const;

  /// Examples that wait.
  [[nodiscard]] std::size_t size() const;

 private:
  std::size_t max_examples_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WaitingRequest> waiting_;
  std::size_t examples_ = 0;
  bool is_stopped_ = false;
};

}  // namespace lockstep
