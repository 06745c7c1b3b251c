// See server_placement.hpp.
#include "plan/server_placement.hpp"

#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep {

namespace {

constexpr std::size_t default_min_bytes = std::size_t{256} << 10U;

/// Part of a variable that one server holds.
struct PlacedRange {
  Range range;
  std::size_t server = 0;
};

/// The number of parts into which a variable is cut.
std::size_t parts_of(const ParameterSpec& parameter, const ServerPlacement& placement, std::size_t servers) {
  const std::size_t bytes = parameter.storage * sizeof(float);
  const std::size_t lines = std::max<std::size_t>(1, arena_elements(parameter) / cache_line_elements);
  std::size_t parts = 1;
  switch (placement.kind) {
    case ServerPlacement::Kind::round_robin:
    case ServerPlacement::Kind::greedy: break;
    case ServerPlacement::Kind::fixed_shards: parts = placement.amount; break;
    case ServerPlacement::Kind::min_size: parts = std::clamp<std::size_t>(bytes / placement.amount, 1, servers); break;
    case ServerPlacement::Kind::max_size: parts = (bytes + placement.amount - 1) / placement.amount; break;
  }
  if (parameter.rule == UpdateRule::assign || parameter.is_constrained()) return 1;
  return std::clamp<std::size_t>(parts, 1, lines);
}

}  // namespace

ServerPlacement parse_server_placement(const std::string& text, const std::string& where) {
  using Kind = ServerPlacement::Kind;
  if (text == "round-robin") return {};
  if (text == "greedy") return {Kind::greedy, 0};
  if (text == "partitioned") return {Kind::min_size, default_min_bytes};
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon);
  const auto amount = parse_number<std::uint32_t>(text.substr(std::min(colon + 1, text.size())));
  for (const auto& [word, kind] : {std::pair{"fixed-shards", Kind::fixed_shards}, std::pair{"min-size", Kind::min_size},
                                   std::pair{"max-size", Kind::max_size}}) {
    if (name == word && amount && *amount > 0) return {kind, *amount};
  }
  throw UsageError(
      fmt::format("{} is '{}' but must be round-robin, greedy, partitioned, fixed-shards:N, min-size:BYTES or "
                  "max-size:BYTES",
                  where, text));
}

std::vector<ServerShard> place_on_servers(const Plan& plan, std::size_t servers, const ServerPlacement& placement) {
  std::vector<PlacedRange> placed;
  std::vector<std::size_t> load(servers);  // in elements
  std::size_t turn = 0;
  for (const ParameterSpec& parameter : plan.graph.parameters) {
    if (parameter.is_local || parameter.rule == UpdateRule::frozen) continue;
    const std::size_t cache_lines = arena_elements(parameter) / cache_line_elements;
    const std::size_t parts = parts_of(parameter, placement, servers);
    for (std::size_t part = 0; part < parts; ++part) {
      const Range slice = slice_of(cache_lines, part, parts);
      const Range range{parameter.offset + slice.begin * cache_line_elements,
                        parameter.offset + slice.end * cache_line_elements};
      const bool is_greedy = placement.kind == ServerPlacement::Kind::greedy;
      const std::size_t server =
          is_greedy ? static_cast<std::size_t>(std::ranges::min_element(load) - load.begin()) : turn++ % servers;
      load[server] += range.size();
      placed.push_back({range, server});
    }
  }
  std::ranges::sort(placed, {}, [](const PlacedRange& each) { return each.range.begin; });
  std::vector<ServerShard> shards;
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    const std::size_t first = shards.size();
    for (const PlacedRange& each : placed) {
      const Range range{std::max(each.range.begin, plan.buckets[bucket].begin),
                        std::min(each.range.end, plan.buckets[bucket].end)};
      if (range.begin >= range.end) continue;
      if (shards.size() > first && shards.back().server == each.server && shards.back().range.end == range.begin) {
        shards.back().range.end = range.end;
      } else {
        shards.push_back({bucket, range, each.server});
      }
    }
  }
  return shards;
}

Plan server_plan(Plan plan, std::vector<Range> own_shards) {
  const std::size_t metrics = plan.graph.parameters[static_cast<std::size_t>(plan.graph.metrics_parameter())].offset;
  plan.buckets = std::move(own_shards);
  plan.compute.clear();
  plan.inference.clear();
  plan.training.clear();
  plan.metrics_bucket = plan.buckets.size();
  for (std::size_t shard = 0; shard < plan.buckets.size(); ++shard) {
    plan.training.emplace_back(Update{shard});
    if (plan.buckets[shard].begin <= metrics && metrics < plan.buckets[shard].end) plan.metrics_bucket = shard;
  }
  return plan;
}

std::string describe_servers(const Plan& plan, const std::vector<ServerShard>& shards, std::size_t servers) {
  std::string text;
  for (std::size_t server = 0; server < servers; ++server) {
    std::size_t total = 0;
    std::string lines;
    for (const ParameterSpec& parameter : plan.graph.parameters) {
      if (parameter.is_local || parameter.rule == UpdateRule::frozen) continue;
      std::size_t elements = 0;
      for (const ServerShard& shard : shards) {
        const std::size_t begin = std::max(shard.range.begin, parameter.offset);
        const std::size_t end = std::min(shard.range.end, parameter.offset + parameter.storage);
        if (shard.server == server && begin < end) elements += end - begin;
      }
      if (elements == 0) continue;
      total += elements * sizeof(float);
      const std::string part =
          elements == parameter.storage ? "" : fmt::format(" of {}", parameter.storage * sizeof(float));
      lines += fmt::format("  {}: {}{} bytes\n", parameter.name, elements * sizeof(float), part);
    }
    text += fmt::format("ps {}: {} bytes\n{}", server, total, lines);
  }
  return text;
}

}  // namespace lockstep
