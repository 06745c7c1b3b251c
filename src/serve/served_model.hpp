// What the two threads of a server share: the HTTP thread reads it, the thread that computes replaces it.
#pragma once

#include "checkpoint/newest_model.hpp"
#include "serve/signature.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace lockstep {

/// A model that is being served.
struct ServedModel {
  ModelVersion version;
  ModelSignature signature;
  std::map<std::string, double> scores = {};  ///< of its training: accuracy, loss, ...
  double pixel_scale = 1;                     ///< the value of a white pixel
};

struct ServedState {
  std::shared_ptr<const ServedModel> model = {};  ///< none before the first one
  std::string problem = {};                       ///< why the newest file is not served, or none is; empty: it is
};

class SharedState {
 public:
  [[nodiscard]] ServedState get() const {
    const std::lock_guard guard(mutex_);
    return state_;
  }
  void set(ServedState state) {
    const std::lock_guard guard(mutex_);
    state_ = std::move(state);
  }

 private:
  mutable std::mutex mutex_;
  ServedState state_;
};

}  // namespace lockstep
