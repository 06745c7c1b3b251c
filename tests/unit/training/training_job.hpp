// A compiled model on one worker, and the architecture that tests of Model train.
#pragma once

#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace lockstep::testing {

inline const SparseCategoricalCrossentropy logits({.from_logits = true});
inline const CompileOptions plain{.optimizer = SGD({.learning_rate = 0.1}), .loss = logits, .metrics = {accuracy}};

/// Has layers that depend on an example's position (Dropout, BatchNormalization) and a layout other than Keras'.
inline const Sequential everything{Input({8, 8, 1}),   Conv2D(16, 3, {.activation = "tanh"}),
                                   AveragePooling2D(), BatchNormalization(),
                                   Dropout(0.3),       Conv2D(32, 2, {.activation = sigmoid}),
                                   Flatten(),          Dense(20, {.activation = "tanh"}),
                                   Dropout(0.5),       Dense(4)};

inline Options silent_options(int batch = 8, int batch_norm_replicas = 0) {
  return {.model_dir = std::filesystem::temp_directory_path() / "lockstep-model-test",
          .global_batch_size = batch,
          .seed = 7,
          .batch_norm_replicas = batch_norm_replicas,
          .verbose = 0};
}

struct Job {
  MultiWorkerMirroredStrategy strategy;
  Model model;
  Job(const Architecture& architecture, const CompileOptions& compile, const Options& options = silent_options())
      : strategy(options), model(strategy.build(architecture)) {
    model.compile(compile);
  }
};

inline bool same_bits(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const NamedTensor& x, const NamedTensor& y) {
    return x.name == y.name && x.values == y.values;
  });
}

}  // namespace lockstep::testing
