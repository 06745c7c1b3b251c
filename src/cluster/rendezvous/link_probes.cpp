// See link_probes.hpp.
#include "cluster/rendezvous/link_probes.hpp"

#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr double first_pause_s = 1;
constexpr double longest_pause_s = 10;
constexpr std::size_t max_cut_links = 4096;  // a network that is cut everywhere has as many as the square of the hosts
constexpr std::size_t max_named_links = 4;
constexpr std::size_t max_reason_bytes = 200;

/// The chief has no connection with an address, but its host has addresses.
ProbeTarget target_of(const PeerInfo& peer) {
  const bool is_chief = peer.address.empty();
  std::string address = is_chief && !peer.addresses.empty() ? peer.addresses.front() : peer.address;
  // Who reached the chief by a loopback address is on its host, which the others have reached too.
  const bool is_loopback = address.starts_with("127.") || address == "::1";
  return {peer.member, std::move(address), is_loopback ? 0 : peer.probe_port};
}

}  // namespace

void LinkProbes::reset() noexcept {
  awaited_.clear();
  cut_links_.clear();
  problem_.clear();
  are_proved_ = false;
  pause_ = first_pause_s;
  next_round_at_ = 0;
}

std::optional<ProbePeers> LinkProbes::next_round(std::span<const PeerInfo> members, double now) {
  if (are_proved_ || !awaited_.empty() || now < next_round_at_) return {};
  targets_.clear();
  for (const PeerInfo& member : members) targets_.push_back(target_of(member));
  const auto is_needed = [this](const ProbeTarget& from) {
    return std::ranges::any_of(targets_, [&](const ProbeTarget& to) { return from.must_reach(to); });
  };
  if (std::ranges::none_of(targets_, is_needed)) {
    are_proved_ = true;
    return {};
  }
  cut_links_.clear();
  for (const ProbeTarget& target : targets_) awaited_.insert(target.member);
  return ProbePeers{++round_, targets_};
}

bool LinkProbes::receive(std::size_t member, const PeersProbed& result, double now) {
  if (result.round > round_) throw DataError("that round does not exist yet");
  if (result.round != round_ || awaited_.empty()) return false;  // of a round that reset() ended
  if (awaited_.erase(member) == 0) throw DataError("it has already answered");
  for (const UnreachablePeer& peer : result.unreachable) {
    if (peer.member >= tasks_.size()) throw DataError("that member does not exist");
    if (cut_links_.size() == max_cut_links) break;
    cut_links_.insert_or_assign({member, peer.member}, printable_line(peer.why.substr(0, max_reason_bytes)));
  }
  if (!awaited_.empty()) return false;
  are_proved_ = cut_links_.empty();
  next_round_at_ = now + pause_;
  pause_ = std::min(2 * pause_, longest_pause_s);
  return std::exchange(problem_, describe_cut_links()) != problem_;
}

std::string LinkProbes::describe_cut_links() const {
  std::string text;
  std::size_t named = 0;
  std::size_t unnamed = 0;
  for (const auto& [ends, why] : cut_links_) {
    const auto [from, to] = ends;
    const bool is_mutual = cut_links_.contains({to, from});
    if (is_mutual && from > to) continue;  // named with its reverse
    if (named == max_named_links) {
      ++unnamed;
      continue;
    }
    if (named++ > 0) text += ", ";
    text += is_mutual ? fmt::format("{} and {} cannot reach each other: {}", name_of(from), name_of(to), why)
                      : fmt::format("{} cannot reach {}: {}", name_of(from), name_of(to), why);
  }
  if (unnamed > 0) text += fmt::format(" and {} more", unnamed);
  return text;
}

std::string LinkProbes::name_of(std::uint64_t member) const {
  const auto target = std::ranges::find(targets_, member, &ProbeTarget::member);
  const std::string address = target == targets_.end() ? "" : printable_line(target->address);
  return address.empty() ? tasks_.at(member) : fmt::format("{} ({})", tasks_.at(member), address);
}

}  // namespace lockstep
