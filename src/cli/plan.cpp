// See plan.hpp.
#include "cli/plan.hpp"

#include "cli/check_output.hpp"
#include "cli/model_settings.hpp"
#include "core/core_contention.hpp"
#include "core/log.hpp"
#include "options/read_value.hpp"
#include "plan/server_placement.hpp"
#include "training/model_parts.hpp"
#include "training/parse_or_exit.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/lockstep.hpp>

#include <fmt/format.h>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

void plan(std::span<const std::string> args) {
  ModelSettings settings;
  NetworkOptions network;
  bool lists_kernels = false;
  std::string network_option;  // one that was given
  std::size_t servers = 0;
  std::string placement;
  const std::vector<ProgramOption> own{
      model_option(settings),
      optimizer_option(settings),
      loss_option(settings),
      metrics_option(settings),
      {.name = "workers",
       .metavar = "N",
       .help = "plan for 1, 2, 4 and so on, up to N",
       .shown_default = std::to_string(network.max_workers),
       .set =
           [&](const OptionValue& given) {
             network.max_workers = read_whole(given, 1, 4096);
             network_option = given.source;
           }},
      {.name = "kernels",
       .metavar = "",
       .help = "list the kernels of one worker's step, with layouts and times, instead",
       .shown_default = "off",
       .set = [&](const OptionValue& /*given*/) { lists_kernels = true; }},
      {.name = "servers",
       .metavar = "N",
       .help = "list what each of N parameter servers holds, instead",
       .shown_default = "none",
       .set = [&](const OptionValue& given) { servers = static_cast<std::size_t>(read_whole(given, 1, 4096)); }},
      {.name = "ps-placement",
       .metavar = "NAME",
       .help =
           "what each ps holds: round-robin, greedy, partitioned,\nfixed-shards:N, min-size:BYTES or max-size:BYTES",
       .shown_default = "round-robin",
       .set = [&](const OptionValue& given) { placement = given.value; }},
      {.name = "bandwidth",
       .metavar = "GBIT",
       .help = "of each worker's link, in Gbit/s",
       .shown_default = "1",
       .set =
           [&](const OptionValue& given) {
             const auto is_allowed = [](double number) { return number >= 1e-3 && number <= 1e5; };
             network.bytes_per_second =
                 1e9 / 8 * read_number(given, is_allowed, "a number of Gbit/s from 0.001 to 100000");
             network_option = given.source;
           }},
      {.name = "latency",
       .metavar = "US",
       .help = "of a message, in microseconds",
       .shown_default = "50",
       .set =
           [&](const OptionValue& given) {
             const auto is_allowed = [](double number) { return number >= 0 && number <= 1e6; };
             network.latency = 1e-6 * read_number(given, is_allowed, "a number of microseconds from 0 to 1000000");
             network_option = given.source;
           }},
  };
  const Options options =
      parse_or_exit(args, {.model_dir = {}, .program = "lockstep plan"}, own,
                    {"Predicts how workers would shard a model, and how long a step would take", false});
  require_model(settings, "lockstep plan");
  if (options.parallelism != Parallelism::automatic) {
    throw UsageError("lockstep plan compares all ways to shard a model; leave --parallelism out");
  }
  if ((servers > 0 || lists_kernels) && !network_option.empty())
    throw UsageError(network_option + " is for the prediction of a step; leave it out, or --kernels and --servers");
  if (servers > 0 && lists_kernels)
    throw UsageError("--servers and --kernels each list something else; leave one of them out");
  if (servers == 0 && !placement.empty())
    throw UsageError("--ps-placement is of parameter servers; add --servers N, or leave it out");
  MultiWorkerMirroredStrategy strategy{options};
  Model model = strategy.load_model(settings.model, [&](const Architecture& architecture, const auto& saved) {
    return resolve_compile_options(settings, architecture, saved, true);
  });
  if (servers > 0) {
    const Plan& its = parts_of(model).model.compiled().plan();
    const std::vector<ServerShard> shards = place_on_servers(
        its, servers, placement.empty() ? ServerPlacement() : parse_server_placement(placement, "--ps-placement"));
    std::string text = describe_servers(its, shards, servers);
    text.pop_back();
    strategy.print("{}", text);
    return require_printed();
  }
  const CoreTimes before = read_core_times();
  std::string text = lists_kernels ? model.describe_kernels() : model.estimate_step_time(network);
  if (text.ends_with('\n')) text.pop_back();
  strategy.print("{}", text);
  constexpr double high_share = 0.2;
  if (const double share = waiting_share(before, read_core_times()); share > high_share) {
    log_warning(
        fmt::format("the threads waited {:.0f} % of the time for cores that others used, so times are too long; "
                    "plan again when the machine is idle",
                    100 * share));
  }
  require_printed();
}

}  // namespace lockstep
