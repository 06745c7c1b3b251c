// CLI11 splits the arguments; errors of every kind become a sentence and an exit code here.
#include "cli/command_line.hpp"

#include "cli/cluster.hpp"
#include "cli/inspect.hpp"
#include "cli/jobs.hpp"
#include "cli/launch.hpp"

#include <CLI/CLI.hpp>
#include <exception>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr double longest_timeout = 3600;  // seconds

ExitCode run(std::span<const std::string> args, std::ostream& out) {
  if (!args.empty() && args.front() == "launch") return launch(args.subspan(1), out);
  CLI::App app("Trains models of Keras, and looks after them and their clusters.", "lockstep");
  app.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
  app.require_subcommand(1);
  app.footer("lockstep COMMAND --help tells a command's options.");

  for (const Job& job : jobs()) app.add_subcommand(job.name, job.help);  // to be listed: main() runs them
  app.add_subcommand("launch", launch_help);                             // to be listed as well

  InspectOptions options;
  std::vector<std::string> pair;
  CLI::App* const inspect_command =
      app.add_subcommand("inspect", "Show the models of a file or a directory, check or compare them");
  inspect_command->add_option("PATH", options.path, "a .keras, .h5 or .weights.h5 file, or a directory of them");
  inspect_command->add_flag("--check", options.check, "exit with 65 if anything is damaged or a weight is no number");
  inspect_command->add_flag("--json", options.json, "print JSON");
  inspect_command
      ->add_option("--compare", pair, "tell the differences; exit with 65 unless all weights have equal bits")
      ->expected(2)
      ->option_text("A B");

  ClusterOptions cluster;
  CLI::App* const cluster_command =
      app.add_subcommand("cluster", "Show what TF_CONFIG says, and which of its tasks can be reached from here");
  cluster_command->add_option("--tf-config", cluster.tf_config, "this, or a file's contents, instead of the variable")
      ->option_text("TEXT|@FILE");
  cluster_command->add_option("--timeout", cluster.timeout, "how long to wait for names, then for answers (5)")
      ->option_text("SECONDS");
  bool no_probe = false;
  cluster_command->add_flag("--no-probe", no_probe, "ask nobody");
  cluster_command->add_flag("--json", cluster.json, "print JSON");

  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 wants them
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    out << (chosen.empty() ? app.help() : chosen.front()->help("lockstep"));
    return ExitCode::success;
  } catch (const CLI::CallForVersion&) {
    out << "lockstep " LOCKSTEP_VERSION "\n";
    return ExitCode::success;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see lockstep --help.");
  }

  for (const Job& job : jobs()) {
    if (app.got_subcommand(job.name)) throw UsageError(job.name + " must come first; see lockstep --help.");
  }
  if (app.got_subcommand("launch")) throw UsageError("launch must come first; see lockstep --help.");
  if (cluster_command->parsed()) {
    if (!(cluster.timeout > 0 && cluster.timeout <= longest_timeout)) {
      throw UsageError("--timeout must be more than 0 and at most 3600 seconds; see lockstep cluster --help.");
    }
    cluster.probe = !no_probe;
    return show_cluster(cluster, out);
  }
  if (!pair.empty()) {
    if (!options.path.empty() || options.check) {
      throw UsageError("--compare takes the two files itself and goes with --json only; see lockstep inspect --help.");
    }
    return compare(pair.at(0), pair.at(1), options.json, out);
  }
  if (options.path.empty()) {
    throw UsageError("lockstep inspect needs the path of a model or of a directory; see lockstep inspect --help.");
  }
  return inspect(options, out);
}

}  // namespace

ExitCode run_command_line(std::span<const std::string> args, std::ostream& out, std::ostream& err) {
  try {
    const ExitCode code = run(args, out);
    if (!out.flush()) throw IoError("Cannot write to standard output; is its disk full, or its reader gone?");
    return code;
  } catch (const Error& error) {
    err << "lockstep: " << error.what() << '\n';
    return error.code();
  } catch (const std::exception& error) {
    err << "lockstep: " << error.what() << "; please report this.\n";
    return ExitCode::internal;
  }
}

}  // namespace lockstep
