// Everything the author of a model program needs.
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/core/history.hpp>
#include <lockstep/core/shape.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/mnist.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/layers.hpp>
#include <lockstep/nn/learning_rate.hpp>
#include <lockstep/nn/losses.hpp>
#include <lockstep/nn/optimizers.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>
#include <lockstep/training/tensorboard.hpp>
