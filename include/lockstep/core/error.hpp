// The exceptions of Lockstep. Each carries the exit code with which its program ends.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// Exit codes of every Lockstep program; the values are those of sysexits.h.
enum class ExitCode : int {
  success = 0,
  usage = 64,      ///< wrong usage or configuration; a restart does not help
  data = 65,       ///< bad data, or training diverged (NaN loss); a restart does not help
  internal = 70,   ///< a bug in Lockstep, or a failure of a library below it
  io = 74,         ///< reading or writing failed
  temporary = 75,  ///< peers were lost or never came; a restart may help
};

/// Base of all errors. `what()` is one sentence for the user: what happened, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Wrong option, configuration or model description.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};

/// A damaged or unsuitable file or value.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
};

/// A failed system call on a file or directory.
class IoError : public Error {
 public:
  explicit IoError(const std::string& message) : Error(ExitCode::io, message) {}
};

/// A peer that is lost, late, or configured differently.
class PeerError : public Error {
 public:
  explicit PeerError(const std::string& message) : Error(ExitCode::temporary, message) {}
};

/// A broken invariant of Lockstep, or a failed call into a library.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::internal, message) {}
};

}  // namespace lockstep
