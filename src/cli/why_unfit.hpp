// Whether a command can use a model file.
#pragma once

#include "cli/inspected_file.hpp"
#include "cli/model_settings.hpp"
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

/// Why `lockstep PURPOSE --model FILE` refuses the file; empty: it takes it.
/// `settings`: the loss, optimizer and metrics that replace the file's.
/// `data`: its data_dir, if there is one, and its input_scale; the data is checked too.
[[nodiscard]] std::string why_unfit(const InspectedFile& file, Purpose purpose, const ModelSettings& settings,
                                    const Options& data);

}  // namespace lockstep
