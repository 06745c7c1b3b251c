// See parse_or_exit.hpp.
#include "training/parse_or_exit.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "cluster/launcher/exec_launcher.hpp"
#include "cluster/world/world.hpp"
#include "core/bound_spinning.hpp"
#include "training/error_handler.hpp"

namespace lockstep {

Options parse_or_exit(std::span<const std::string> args, Options defaults,
                      std::span<const ProgramOption> program_options, const ProgramPurpose& purpose) {
  install_error_handler();  // here, because parsing is the first thing a program does
  const Environment environment = current_environment();
  try {
    Options options = parse_options(args, environment, std::move(defaults), program_options, purpose);
    std::vector<std::string> program_names;
    for (const ProgramOption& option : program_options) program_names.push_back(option.name);
    const auto misspelt = find_misspelt_variables(environment, shared_options(options), program_names);
    if (!misspelt.empty()) throw UsageError(misspelt.front() + " Rename or unset it");
    if (purpose.trains) exec_launcher_if_needed(environment);
    return options;
  } catch (const TextRequest& request) {
    if (launcher_rank(environment) == 0) std::cout << request.text << std::flush;
    std::exit(static_cast<int>(ExitCode::success));
  } catch (const Error& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  }
}

Options Options::parse(int argc, char** argv, Options defaults, const std::vector<ProgramOption>& program_options) {
  bound_spinning();
  const std::string self = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : std::string();
  if (defaults.program.empty()) defaults.program = self.empty() ? "program" : self;
  return parse_or_exit(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), std::move(defaults),
                       program_options);
}

}  // namespace lockstep
