// A small model for the tests of whole-model HDF5 files.
#pragma once

#include "checkpoint/model_data.hpp"
#include "core/random.hpp"
#include "random_model.hpp"

#include <lockstep/layers/sequential.hpp>

namespace lockstep::testing {

/// Dense(3) with random weights. With training it is compiled with Adam and has random slots.
inline ModelData dense_model(bool with_training) {
  ModelData model{Sequential{Input({4}), Dense(3)}, {}, {}};
  RandomStream random(1, RandomPurpose::test, 1);
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  if (with_training) {
    model.compile_state =
        CompileState{{Adam(), SparseCategoricalCrossentropy({.from_logits = true}), {accuracy}}, 7, {}};
    model.compile_state->slots = slots_for(model.architecture, model.compile_state->optimizer);
    fill(model.compile_state->slots, random);
  }
  return model;
}

}  // namespace lockstep::testing
