// See plan.hpp.
#include "cli/plan.hpp"

#include "cli/model_settings.hpp"
#include "training/options_parser.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/lockstep.hpp>

#include <charconv>
#include <cmath>
#include <iostream>
#include <string>
#include <system_error>

namespace lockstep {

namespace {

double read_number(const std::string& option, const std::string& text, double least, double most,
                   const std::string& allowed) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end && number >= least && number <= most) return number;
  throw UsageError(option + " is '" + text + "' but must be " + allowed + "; see lockstep plan --help");
}

}  // namespace

void plan(std::span<const std::string> args) {
  ModelSettings settings;
  PredictionOptions network;
  const std::vector<ProgramOption> own{
      model_option(settings),
      optimizer_option(settings),
      loss_option(settings),
      metrics_option(settings),
      {.name = "workers",
       .value = "N",
       .help = "for 1, 2, 4 and so on, up to so many",
       .shown_default = std::to_string(network.most_workers),
       .set =
           [&](const std::string& text) {
             const double number = read_number("--workers", text, 1, 4096, "a whole number from 1 to 4096");
             if (number != std::floor(number)) read_number("--workers", text, 1, 0, "a whole number from 1 to 4096");
             network.most_workers = static_cast<int>(number);
           }},
      {.name = "link",
       .value = "GBIT",
       .help = "rate of each worker's link, in Gbit/s",
       .shown_default = "1",
       .set =
           [&](const std::string& text) {
             network.bytes_per_second =
                 1e9 / 8 * read_number("--link", text, 1e-3, 1e5, "a number of Gbit/s from 0.001 to 100000");
           }},
      {.name = "latency",
       .value = "US",
       .help = "of a message, in microseconds",
       .shown_default = "50",
       .set =
           [&](const std::string& text) {
             network.latency =
                 1e-6 * read_number("--latency", text, 0, 1e6, "a number of microseconds from 0 to 1000000");
           }},
  };
  const Options options =
      parse_or_exit(args, {.model_dir = {}, .program = "lockstep plan"}, own,
                    {"Tells how workers would divide a model, and how long a step would take", false});
  check_model_name(settings, "lockstep plan");
  MultiWorkerMirroredStrategy strategy{options};
  const Model model = strategy.load_model(settings.model, [&](const Sequential& architecture, const auto& saved) {
    return compilation_of(settings, architecture, saved, true);
  });
  strategy.print(model.predict_steps(network));
}

}  // namespace lockstep
