// What workers compare before they train together: model, options, data.
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>

#include <string>

namespace lockstep {

/// "60000 examples of (28, 28), digest 0123456789abcdef". Reads everything: some 5 ms for MNIST.
[[nodiscard]] std::string digest_of(const Dataset& data);

/// The model and the options that change what is trained, in one line.
[[nodiscard]] std::string describe_agreement(const Sequential& architecture, const Options& options,
                                             const CompileOptions& compile);

}  // namespace lockstep
