// The secret that all launchers of a job share. It is never sent: whoever knows it proves that by a keyed digest of
// what both sides have just made up. And the random numbers that such things need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/environment.hpp"

namespace lockstep {

class JobToken {
 public:
  /// No token: proofs are made and checked as well, but anybody can make them.
  JobToken() = default;
  explicit JobToken(std::string secret) : secret_(std::move(secret)) {}

  /// The first line of `file` where that is not empty, else LOCKSTEP_JOB_TOKEN. Throws UsageError for a file that
  /// cannot be read or says nothing.
  [[nodiscard]] static JobToken of(const Environment& environment, const std::string& file);

  [[nodiscard]] bool exists() const noexcept { return !secret_.empty(); }

  /// HMAC-SHA256 of `text`: 32 bytes.
  [[nodiscard]] std::string prove(std::string_view text) const;
  /// In a time that does not tell how much of it is right.
  [[nodiscard]] bool checks(std::string_view proof, std::string_view text) const;

 private:
  std::string secret_;
};

/// Bytes that nobody can foretell.
[[nodiscard]] std::string unpredictable_bytes(std::size_t count);
[[nodiscard]] std::uint64_t unpredictable_number();

}  // namespace lockstep
