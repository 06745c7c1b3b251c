// Whether a command can use a model file.
#pragma once

#include "cli/inspected_file.hpp"
#include "options/option_words.hpp"

#include <lockstep/training/options.hpp>

#include <array>
#include <string>
#include <utility>

namespace lockstep {

/// The commands that load a model as it was saved.
enum class Purpose { none, train, evaluate, predict };

template <>
struct OptionWords<Purpose> {
  static constexpr std::array all{std::pair{Purpose::train, "train"}, std::pair{Purpose::evaluate, "evaluate"},
                                  std::pair{Purpose::predict, "predict"}};
};

/// Why `lockstep PURPOSE --model FILE`, without options that replace parts of the file, refuses the file; empty: it
/// takes it.
/// `data`: its data_dir, if there is one, and its input_scale; the data is checked too.
[[nodiscard]] std::string why_unfit(const InspectedFile& file, Purpose purpose, const Options& data);

}  // namespace lockstep
