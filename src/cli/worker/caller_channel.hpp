// The chief's end of the socket pair to the program that called lockstep.fit. Every packet is one JSON object, so a
// chief that is killed leaves no partial message for the chief of the next generation.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>
#include <optional>

namespace lockstep {

class CallerChannel {
 public:
  static constexpr int version = 3;  ///< of the messages; the first one carries it

  /// `descriptor` is inherited. When the caller is gone, a thread removes the job's directory `temporary` (empty: none)
  /// and ends this process with an exit code after which no launcher restarts it.
  CallerChannel(int descriptor, std::filesystem::path temporary);

  void send(const nlohmann::json& message) const;

  /// The next message of the caller, if there is one already.
  [[nodiscard]] std::optional<nlohmann::json> poll() const;

  /// Waits for the next message. Calls `while_waiting` about once a second.
  [[nodiscard]] nlohmann::json receive(const std::function<void()>& while_waiting) const;

 private:
  int descriptor_;
};

/// A number for the caller. JSON has no NaN and no infinities, so they become strings that Python's float() reads.
[[nodiscard]] nlohmann::json to_json_number(double value);

}  // namespace lockstep
