// Everything the author of a model program needs.
#pragma once

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/callback_state.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/core/history.hpp>
#include <lockstep/core/named_tensor.hpp>
#include <lockstep/core/shape.hpp>
#include <lockstep/data/cifar.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/load_dataset.hpp>
#include <lockstep/data/mnist.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/layer.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/losses/losses.hpp>
#include <lockstep/metrics/metrics.hpp>
#include <lockstep/optimizers/learning_rate.hpp>
#include <lockstep/optimizers/optimizers.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>
